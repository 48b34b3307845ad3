"""Writes docs/encodings.md, a row for every encoding, from the classes themselves, and a picture for each.

    python docs/encodings.py            writes what is not current
    python docs/encodings.py --check    fails where something is not current

A picture shows what the encoding adds to the logits, before and after a toy training. It carries a digest of the code
that it depends on most, this file's and the encoding's, by which the check knows it without training again.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

import relbias as rb
from relbias.attention.call import Call
from relbias.attention.functional import IMPLEMENTATIONS
from relbias.attention.observe import observe
from relbias.attention.reference import logits
from relbias.encodings.absolute import default_index
from relbias.encodings.base import find_encoding
from relbias.relations import Grid, Hops, Index, Pairs, Relation, Sequence
from relbias.terms import Terms

HERE = Path(__file__).parent
PAGE, IMAGES = HERE / "encodings.md", HERE / "images" / "encodings"
HEADS, HEAD_DIM = 8, 64
"""The size at which parameters are counted."""
RELATIONS: tuple[Relation, ...] = (
    Sequence(),
    Sequence(max_distance=128),
    Grid(14, 14, prefix_tokens=1),
    Pairs(num_codes=16),
    Hops(max_distance=20),
)
TOY_HEADS, TOY_HEAD_DIM, TOY_BATCH, TOY_STEPS = 2, 16, 16, 200
TOY_RELATIONS: tuple[Relation, ...] = (Sequence(), Sequence(max_distance=24), Grid(5, 5), Pairs(num_codes=3), Hops(4))
EXTRAPOLATION = {"formula": "by the formula", "clipped": "as the farthest", "none": "no"}


class Toy(nn.Module):
    """One layer with an encoding, in attention or at its input; by itself it knows no positions."""

    def __init__(self, name: str, relations: tuple[Relation, ...], heads: int, head_dim: int) -> None:
        super().__init__()
        built = first_accepted(name, relations, heads, head_dim)
        self.position = built if hasattr(built, "embed") else None
        layer = "none" if self.position is not None else built
        self.encoding = built
        self.attention = rb.RelativeAttention(heads * head_dim, heads, layer, scale="paper")

    def forward(self, x: Tensor, index: Index) -> Tensor:
        if self.position is not None:
            return self.attention(self.position.embed(x, index))
        return self.attention(x, index=index, is_causal=hides_later_keys(self.encoding))


def first_accepted(name: str, relations: tuple[Relation, ...], heads: int, head_dim: int) -> Any:
    """The encoding over the first of the relations that it takes."""
    errors = []
    for relation in relations:
        try:
            return rb.create_encoding(name, heads, head_dim, relation)
        except ValueError as error:
            errors.append(str(error))
    raise ValueError(f"{name!r} takes none of the relations of this page: {'; '.join(errors)}")


def accepted(name: str) -> str:
    """The classes of relations that an encoding takes."""
    cls = find_encoding(name)
    kinds = dict.fromkeys(type(relation) for relation in RELATIONS)
    return ", ".join(kind.__name__ for kind in kinds if issubclass(kind, cls.relations))


def example(relation: Relation, generator: torch.Generator) -> Any:
    """An index of some tokens."""
    if isinstance(relation, Sequence):
        return relation(24)
    if isinstance(relation, Hops | Pairs):
        return relation(torch.randint(0, relation.num_codes, (24, 24), generator=generator))
    return default_index(relation, *relation().shape)


def wanted(index: Any) -> Tensor:
    """Which keys the toy task asks for, (N, M) bool: three tokens back, the patch above, or those of one code."""
    relation_codes = index.differences()[0, 0] if hasattr(index, "differences") else index.codes()[0, 0]
    if hasattr(index, "differences"):
        return relation_codes == -3
    if hasattr(index, "coordinates"):
        places = index.coordinates()
        step = torch.zeros(places.shape[1], dtype=torch.int64)
        step[0] = 1
        return (places[:, None] - places[None] == step).all(dim=-1)
    return relation_codes == 1


def calls(toy: Toy, x: Tensor, index: Any) -> Call:
    """The call of attention that a toy makes."""
    seen: list[Call] = []
    with observe(toy, lambda _, call: seen.append(call)):
        toy(x, index)
    return seen[0]


def added(toy: Toy, x: Tensor, index: Any) -> Tensor:
    """What the encoding adds to the logits, (H, N, N), the mean over a batch; NaN where it hides the key.

    An encoding at the input adds nothing there; shown is what its vectors add by themselves, their products.
    """
    if toy.position is not None:
        vectors = toy.position.embed(torch.zeros_like(x[:1]), index)
        return (vectors @ vectors.mT).detach()
    call = calls(toy, x, index)
    difference = (logits(call) - logits(replace(call, terms=Terms()))).mean(dim=0).detach()
    return torch.where(difference.isfinite(), difference, torch.nan)


def train(toy: Toy, index: Any) -> None:
    """Learn to give back the token that the task asks for."""
    keys = wanted(index)
    rows = keys.any(dim=1)
    pick = keys.float() / keys.sum(dim=1, keepdim=True).clamp(min=1)
    optimizer = torch.optim.Adam(toy.parameters(), lr=0.01)
    for _ in range(TOY_STEPS):
        x = torch.randn(TOY_BATCH, len(keys), TOY_HEADS * TOY_HEAD_DIM)
        loss = (toy(x, index) - pick @ x)[:, rows].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def draw(name: str, path: Path) -> None:
    """The picture of an encoding."""
    torch.manual_seed(0)
    toy = Toy(name, TOY_RELATIONS, TOY_HEADS, TOY_HEAD_DIM)
    index = example(toy.encoding.relation, torch.Generator().manual_seed(0))
    x = torch.randn(64, index.shape[0], TOY_HEADS * TOY_HEAD_DIM)
    before = added(toy, x, index)
    train(toy, index)
    panels = torch.cat((before[:TOY_HEADS], added(toy, x, index)[:TOY_HEADS]))
    figure = Figure(figsize=(1.5 * len(panels), 1.7), layout="constrained")
    for position, (panel, axis) in enumerate(zip(panels, figure.subplots(1, len(panels)), strict=True)):
        picture = axis.imshow(panel, cmap="viridis")
        head = f", head {position % TOY_HEADS}" if len(panels) > 2 else ""
        axis.set_title(f"{'start' if position < len(panels) // 2 else 'trained'}{head}", fontsize=7)
        bar = figure.colorbar(picture, ax=axis, shrink=0.7)
        bar.ax.tick_params(labelsize=5)
        axis.set_axis_off()
    figure.savefig(path, dpi=90, metadata={"Digest": digest(name)})


def digest(name: str) -> str:
    """Of this file and of the encoding's, without comments and docstrings."""
    text = ""
    for file in (Path(__file__), Path(inspect.getfile(find_encoding(name)))):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if (
                isinstance(body, list)
                and body
                and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)
            ):
                body[0].value.value = ""
        text += ast.dump(tree)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hides_later_keys(encoding: Any) -> bool:
    """Whether the method is made for causal attention."""
    return getattr(encoding, "causal", False)


def row(name: str) -> str:
    """The row of an encoding in the table."""
    cls = find_encoding(name)
    toy = Toy(name, RELATIONS, HEADS, HEAD_DIM)
    index = example(toy.encoding.relation, torch.Generator().manual_seed(0))
    call = calls(toy, torch.randn(1, index.shape[0], HEADS * HEAD_DIM), index)
    parameters = sum(parameter.numel() for parameter in toy.encoding.parameters())
    able = [implementation.name for implementation in IMPLEMENTATIONS.values() if implementation.refusal(call) is None]
    title, _, address = cls.paper.rpartition(", ")
    return "| " + " | ".join(
        (
            f"`{name}`",
            cls.formula.replace("|", "\\|"),
            f"[{title}]({address})",
            ", ".join(call.terms.names) or ("at the input" if toy.position is not None else "-"),
            accepted(name),
            f"{parameters:,}" if parameters else "fixed",
            EXTRAPOLATION[cls.extrapolation],
            ", ".join(able),
            f"![{name}](images/encodings/{name}.png)",
        )
    ) + " |"  # fmt: skip


def page() -> str:
    """The text of docs/encodings.md."""
    toys = f"{TOY_HEADS} heads of size {TOY_HEAD_DIM}, {TOY_STEPS} steps"
    head = [
        "# The encodings",
        "",
        "Written by `python docs/encodings.py` from the classes themselves; the tests check that it is current.",
        "",
        "- *terms*, *implementations*: with default options; an option can add terms, such as shaw's values=True.",
        f"- *parameters*: {HEADS} heads of size {HEAD_DIM}, over the first of these relations that it takes: "
        + ", ".join(f"`{relation!r}`" for relation in RELATIONS)
        + ".",
        "- *far away*: what holds at distances that training has not seen. It says nothing about how well that works.",
        "- *picture*: what the encoding adds to the logits (for one at the input, the products of its vectors), at the "
        f"start and after a toy training ({toys}): one layer learns to give back the token three places before, the "
        "patch above (the one before in time), or those of one code. Mean over a batch of random tokens.",
        "",
        "| name | formula | paper | terms | relations | parameters | far away | implementations | picture |",
        f"|{'---|' * 9}",
    ]
    return "\n".join([*head, *(row(name) for name in names()), ""])


def names() -> list[str]:
    """The library's own encodings."""
    return [name for name in rb.list_encodings() if find_encoding(name).__module__.startswith("relbias.")]


def outdated() -> list[str]:
    """The names of the files that are missing, not current, or of no encoding."""
    pictures = {name: IMAGES / f"{name}.png" for name in names()}
    old = [file.name for file in IMAGES.glob("*.png") if file.stem not in pictures]
    for name, file in pictures.items():
        if not file.exists() or Image.open(file).info.get("Digest") != digest(name):
            old.append(file.name)
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        old.append(PAGE.name)
    return old


def main() -> int:
    """The command."""
    old = outdated()
    if "--check" in sys.argv:
        print(f"not current: {', '.join(old)}; run: python docs/encodings.py" if old else "current")
        return int(bool(old))
    IMAGES.mkdir(parents=True, exist_ok=True)
    for file in old:
        if file == PAGE.name:
            PAGE.write_text(page(), encoding="utf-8")
        elif Path(file).stem in names():
            draw(Path(file).stem, IMAGES / file)
        else:
            (IMAGES / file).unlink()
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
