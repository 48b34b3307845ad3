"""Writes docs/encodings.md, a row for every encoding, from the classes themselves, and a picture for each.

    python docs/encodings.py            writes what is not current
    python docs/encodings.py --check    fails where something is not current

A picture shows what the encoding adds to the logits, before and after a toy training. It carries a digest of the code
that it depends on most, toy.py and the file of the encoding, by which the check knows it without training again.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from pathlib import Path

import torch
from PIL import Image
from toy import TOY_HEAD_DIM, TOY_HEADS, TOY_STEPS, Toy, call_of, draw, example

import relbias as rb
from relbias.attention.functional import IMPLEMENTATIONS
from relbias.encodings.base import find_encoding
from relbias.relations import (
    Bins,
    Distances,
    EdgePaths,
    EdgeSets,
    Features,
    Grid,
    HeadGroups,
    Hops,
    Pairs,
    Relation,
    Sequence,
    Volume,
)

HERE = Path(__file__).parent
PAGE, IMAGES = HERE / "encodings.md", HERE / "images" / "encodings"
HEADS, HEAD_DIM = 8, 64
"""The size at which parameters are counted."""
RELATIONS: tuple[Relation, ...] = (
    Sequence(),
    Sequence(max_distance=128),
    Grid(14, 14, prefix_tokens=1),
    Volume(8, 14, 14),
    Pairs(num_codes=16),
    Hops(max_distance=20),
    EdgeSets(num_types=4),
    EdgePaths(num_types=8, max_edges=5),
    Bins(num_bins=32),
    Distances(num_types=4),
    Features(num_features=8),
    HeadGroups((Pairs(12), Pairs(12)), heads=(4, 4)),
)
EXTRAPOLATION = {"formula": "by the formula", "clipped": "as the farthest", "none": "no"}


def accepted(name: str) -> str:
    """The classes of relations that an encoding takes."""
    cls = find_encoding(name)
    kinds = dict.fromkeys(type(relation) for relation in RELATIONS)
    if cls.relations != (Relation,):
        return ", ".join(kind.__name__ for kind in kinds if issubclass(kind, cls.relations))
    return "any with a limited number of codes" if cls.fixed_size else "any"


def digest(name: str) -> str:
    """Of toy.py and of the file of the encoding, without comments and docstrings."""
    text = ""
    for file in (HERE / "toy.py", Path(inspect.getfile(find_encoding(name)))):
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


@torch.no_grad()
def row(name: str) -> str:
    """The row of an encoding in the table."""
    cls = find_encoding(name)
    toy = Toy(name, RELATIONS, HEADS, HEAD_DIM)
    index, _ = example(toy.encoding.relation)
    call = call_of(toy, torch.randn(1, index.shape[0], HEADS * HEAD_DIM), index)
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
        "- *terms*, *implementations*: with default options; an option can add terms, such as shaw's values=True. The "
        "implementations are those that can infer; `flex` trains on GPUs only.",
        f"- *parameters*: {HEADS} heads of size {HEAD_DIM}, over the first of these relations that it takes: "
        + ", ".join(f"`{relation!r}`" for relation in RELATIONS)
        + ".",
        "- *far away*: what holds at distances that training has not seen. It says nothing about how well that works.",
        "- *picture*: what the encoding adds to the logits (for one at the input, the products of its vectors), at the "
        f"start and after a toy training ({toys}): one layer learns to give back the token three places before, the "
        "patch above, or the mean of those of one code or with the highest numbers. Mean over a batch of random "
        "tokens; white is a hidden key.",
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
            draw(Path(file).stem, IMAGES / file, digest(Path(file).stem))
        else:
            (IMAGES / file).unlink()
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
