"""What is measured: shapes, and the relations between their tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from relbias.encodings import Encoding, create_encoding
from relbias.relations import Grid, Hops, Index, Relation, Sequence

Shape = tuple[int, int, int, int]
"""(B, H, N, D)."""

_FARTHEST = 20
"""The largest number of hops with a code of its own; the graphs measured have some that are farther."""


@dataclass(frozen=True)
class Problem:
    """A relation over given tokens.

    Args:
        case: the name of the case.
        shape: (B, H, N, D) of q, k and v.
        relations: those that encodings are tried with, the first that one takes is its own.
        bind: gives for one of the relations the index of all N tokens.
        bind_last: gives for one of the relations and n the index of the last n tokens as queries and all as keys; None
            where the relation has none.
    """

    case: str
    shape: Shape
    relations: tuple[Relation, ...]
    bind: Callable[[Any], Index]
    bind_last: Callable[[Any, int], Index] | None = None

    def encoding(self, name: str) -> Encoding:
        """An encoding over the first of the relations that it takes.

        Raises:
            ValueError: no such encoding, or it takes none of the relations, or acts at the input.
        """
        _, heads, _, size = self.shape
        reason: ValueError | None = None
        for relation in self.relations:
            try:
                encoding = create_encoding(name, heads, size, relation)
            except ValueError as error:
                reason = reason or error
                continue
            if hasattr(encoding, "embed"):
                raise ValueError(f"{name!r} is added to the input and does nothing in attention to be measured")
            return encoding
        raise ValueError(f"the case {self.case!r} cannot measure {name!r}: {reason}")


@dataclass(frozen=True)
class Case:
    """A kind of relation with the shapes and encodings that are measured by default.

    Args:
        shapes: (B, H, N, D) each.
        encodings: names.
        make: the problem of a shape, given the case's name.
    """

    shapes: tuple[Shape, ...]
    encodings: tuple[str, ...]
    make: Callable[[str, Shape], Problem]


def _sequence(case: str, shape: Shape) -> Problem:
    relations = (Sequence(), Sequence(max_distance=128))
    tokens = shape[2]
    return Problem(case, shape, relations, lambda r: r(tokens), lambda r, n: r(n, tokens))


def _grid(case: str, shape: Shape) -> Problem:
    side = math.isqrt(max(shape[2] - 1, 0))
    if side < 1 or side * side + 1 != shape[2]:
        raise ValueError(
            f"the case {case!r} is a square grid and a class token, N = S^2 + 1 such as 197; got N = {shape[2]}"
        )
    grid = Grid(side, side, prefix_tokens=1)
    return Problem(case, shape, (grid,), lambda r: r())


def _graph(case: str, shape: Shape) -> Problem:
    """Paths with a shortcut between random nodes, another one in each graph; the last node is cut off."""
    batch, _, n, _ = shape
    generator = torch.Generator().manual_seed(0)
    nodes = torch.arange(n)
    a, b = torch.randint(0, n, (2, batch, 1, 1), generator=generator)
    direct = (nodes[:, None] - nodes).abs()
    first, second = (nodes - a).abs() + 1, (nodes - b).abs()
    over = torch.minimum(first.mT + second, second.mT + first)
    distances = torch.minimum(direct, over)
    distances[:, -1, :-1] = distances[:, :-1, -1] = -1
    return Problem(case, shape, (Hops(_FARTHEST),), lambda r: r(distances))


CASES: Mapping[str, Case] = {
    "sequence": Case(((2, 8, 1024, 64),), ("t5", "alibi", "rope", "shaw"), _sequence),
    "long": Case(((1, 8, 4096, 64),), ("t5",), _sequence),
    "grid": Case(((8, 6, 197, 64),), ("table",), _grid),
    "graph": Case(((64, 8, 23, 16),), ("table",), _graph),
}
"""By name: a sequence, a long sequence, an image's grid of patches with a class token, and a batch of small graphs."""
