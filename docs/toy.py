"""A toy training for every encoding, and the picture of what it adds to the logits before and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import relbias as rb
from relbias.attention.call import Call
from relbias.attention.observe import observe
from relbias.attention.reference import logits
from relbias.relations import Bins, Distances, EdgePaths, EdgeSets, Features, Grid, Index, Pairs, Relation, Sequence
from relbias.terms import Terms
from relbias.testing import random_values

TOY_HEADS, TOY_HEAD_DIM, TOY_BATCH, TOY_STEPS = 2, 16, 16, 200
TOKENS = 24
TOY_RELATIONS: tuple[Relation, ...] = (
    Sequence(),
    Sequence(max_distance=TOKENS),
    Grid(5, 5),
    Pairs(num_codes=3),
    EdgeSets(num_types=2),
    EdgePaths(num_types=3, max_edges=2),
    Bins(num_bins=4),
    Distances(),
    Features(num_features=2),
)


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
        return self.attention(x, index=index)


def first_accepted(name: str, relations: tuple[Relation, ...], heads: int, head_dim: int) -> Any:
    """The encoding over the first of the relations that it takes."""
    errors = []
    for relation in relations:
        try:
            return rb.create_encoding(name, heads, head_dim, relation)
        except ValueError as error:
            errors.append(str(error))
    raise ValueError(f"{name!r} takes none of the relations of this page: {'; '.join(errors)}")


def example(relation: Relation) -> tuple[Any, Tensor]:
    """An index of some tokens, and which keys the toy task asks for, (N, N) bool.

    Asked for are the token three places before, the patch above (in a video the one before), or the pairs of one code,
    path or the like; where a pair has real numbers, the quarter of the pairs with the highest.
    """
    if isinstance(relation, Sequence):
        index = relation(TOKENS)
        return index, index.differences()[0, 0] == -3
    values = random_values(relation, 1, TOKENS, TOKENS)
    if values is None:
        index = relation()
        places = index.coordinates()
        step = torch.zeros(places.shape[1], dtype=torch.int64)
        step[0] = 1
        above = (places[:, None] - places[None] == step).all(dim=-1)
        return index, nn.functional.pad(above, (index.prefix_tokens, 0, index.prefix_tokens, 0))
    first = values[0][0] if values[0].ndim == 3 else values[0][0, ..., 0]
    return relation(*values), first >= first.quantile(0.75) if first.is_floating_point() else first == 1


def call_of(toy: Toy, x: Tensor, index: Any) -> Call:
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
        vectors = (toy.position.embed(x, index) - x).detach()
        return (vectors @ vectors.mT).mean(dim=0, keepdim=True)
    call = call_of(toy, x, index)
    difference = (logits(call) - logits(replace(call, terms=Terms()))).mean(dim=0).detach()
    return torch.where(difference.isfinite(), difference, torch.nan)


def train(toy: Toy, index: Any, keys: Tensor) -> None:
    """Learn to give back the mean of the tokens that the task asks for."""
    rows = keys.any(dim=1)
    pick = keys.float() / keys.sum(dim=1, keepdim=True).clamp(min=1)
    optimizer = torch.optim.Adam(toy.parameters(), lr=0.01)
    for _ in range(TOY_STEPS):
        x = torch.randn(TOY_BATCH, len(keys), TOY_HEADS * TOY_HEAD_DIM)
        loss = (toy(x, index) - pick @ x)[:, rows].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def draw(name: str, path: Path, digest: str) -> None:
    """The picture of an encoding, which carries a digest."""
    torch.manual_seed(0)
    toy = Toy(name, TOY_RELATIONS, TOY_HEADS, TOY_HEAD_DIM)
    index, keys = example(toy.encoding.relation)
    x = torch.randn(64, index.shape[0], TOY_HEADS * TOY_HEAD_DIM)
    before = added(toy, x, index)
    train(toy, index, keys)
    panels = torch.cat((before[:TOY_HEADS], added(toy, x, index)[:TOY_HEADS]))
    figure = Figure(figsize=(1.5 * len(panels), 1.7), layout="constrained")
    for position, (panel, axis) in enumerate(zip(panels, figure.subplots(1, len(panels)), strict=True)):
        picture = axis.imshow(panel, cmap="viridis")
        head = f", head {position % TOY_HEADS}" if len(panels) > 2 else ""
        axis.set_title(f"{'start' if position < len(panels) // 2 else 'trained'}{head}", fontsize=7)
        bar = figure.colorbar(picture, ax=axis, shrink=0.7)
        bar.ax.tick_params(labelsize=5)
        axis.set_axis_off()
    figure.savefig(path, dpi=90, metadata={"Digest": digest})
