"""Relations given pair by pair, as integers: anything, and hops in a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import (
    ALL_ROWS,
    Index,
    Relation,
    as_integers,
    can_check_values,
    check_size,
    num_prefix_codes,
    prefix_codes,
)
from relbias.relations.graph_batch import GraphBatch, GraphRelation


@dataclass(frozen=True)
class Pairs(Relation):
    """Codes given for every pair, for example the kind of an edge.

    Args:
        num_codes: R; codes are integers in [0, R).

    Raises:
        ValueError: `num_codes` is not a positive integer.

    Example:
        >>> pairs = Pairs(num_codes=3)
        >>> index = pairs(torch.tensor([[0, 2], [1, 0]]))
        >>> index.shape, index.codes().shape
        ((2, 2), torch.Size([1, 1, 2, 2]))
    """

    num_codes: int

    def __post_init__(self) -> None:
        check_size("Pairs' num_codes", self.num_codes, 1)

    @property
    def index_type(self) -> type[PairsIndex]:
        return PairsIndex

    def __call__(self, codes: Tensor) -> PairsIndex:
        """The index of one call.

        Args:
            codes: (N, M), (B, N, M) or (B, H, N, M) integers in [0, R).

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a code out of range.
        """
        codes = as_pairs("codes", codes)
        if can_check_values(codes) and codes.numel():
            low, high = int(codes.min()), int(codes.max())
            if low < 0 or high >= self.num_codes:
                wrong = low if low < 0 else high
                raise ValueError(
                    f"Pairs({self.num_codes}) takes codes from 0 to {self.num_codes - 1}, got {wrong}; "
                    "give the relation more codes or correct the input"
                )
        return PairsIndex(codes, self.num_codes)


@dataclass(frozen=True)
class Hops(GraphRelation):
    """The number of edges on a shortest path between two nodes of a graph.

    The codes are the distances 0 ... max_distance, then one for "far" (more than max_distance), one for
    "unreachable" (no path), then those of the prefix tokens (a graph token): prefix token to node (P codes), node to
    prefix token (P), prefix token to prefix token (P^2).

    Args:
        max_distance: the largest distance with a code of its own, in hops.
        prefix_tokens: P, the number of tokens before the nodes. The index covers them; the distances given do not.
        one_prefix_code: whether all pairs with a prefix token share one code, as in Graphormer
            (https://arxiv.org/abs/2106.05234).

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> hops = Hops(max_distance=2)
        >>> distances = torch.tensor([[0, 1, 5, -1]])  # -1: no path
        >>> hops(distances).codes()[0, 0]
        tensor([[0, 1, 3, 4]])
        >>> hops(distances).distances.dtype
        torch.int8
    """

    max_distance: int
    prefix_tokens: int = 0
    one_prefix_code: bool = False

    def __post_init__(self) -> None:
        check_size("Hops' max_distance", self.max_distance, 0)
        check_size("Hops' prefix_tokens", self.prefix_tokens, 0)
        if self.max_distance > torch.iinfo(torch.int16).max - 1:
            raise ValueError(f"Hops takes a max_distance of at most 32766, got {self.max_distance}")

    @property
    def num_codes(self) -> int:
        return _num_codes(self)

    @property
    def index_type(self) -> type[HopsIndex]:
        return HopsIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.max_distance, self.prefix_tokens, self.one_prefix_code

    def of_graphs(self, graphs: GraphBatch) -> HopsIndex:
        """The index of a batch of graphs."""
        return self(graphs.distances)

    def __call__(self, distances: Tensor) -> HopsIndex:
        """The index of one call.

        Args:
            distances: (N, M), (B, N, M) or (B, H, N, M) integers, in hops; -1 where there is no path. What exceeds
                `max_distance` counts as far. With prefix tokens, of the nodes only.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a distance below -1.
        """
        distances = as_pairs("distances", distances)
        if can_check_values(distances) and distances.numel() and int(distances.min()) < -1:
            raise ValueError(
                f"Hops takes distances of at least 0, and -1 where there is no path; got {int(distances.min())}"
            )
        if self.max_distance + 1 > torch.iinfo(distances.dtype).max:
            distances = distances.to(torch.int16)  # so that the limit has room
        # int8 up to 126, else int16: room for "far" above and "unreachable" below.
        dtype = torch.int8 if self.max_distance <= 126 else torch.int16
        distances = distances.clamp(max=self.max_distance + 1).to(dtype)
        return HopsIndex(distances, self.max_distance, self.prefix_tokens, self.one_prefix_code)


def _num_codes(hops: Hops | HopsIndex) -> int:
    """Those of distances, far and unreachable, and of pairs with a prefix token."""
    prefix = num_prefix_codes(hops.prefix_tokens)
    return hops.max_distance + 3 + (min(prefix, 1) if hops.one_prefix_code else prefix)


def as_pairs(name: str, values: Tensor) -> Tensor:
    """Integers given for pairs as (B or 1, H or 1, N, M), or a ValueError; `name` is what the user called them."""
    values = as_integers(name, values)
    if values.ndim not in (2, 3, 4):
        raise ValueError(f"{name} must have shape (N, M), (B, N, M) or (B, H, N, M), got {tuple(values.shape)}")
    if values.ndim == 4:
        return values
    return values[None, None] if values.ndim == 2 else values[:, None]


def transpose_pairs(values: Tensor) -> Tensor:
    """Values of the pairs (j, i), from (..., N, N), or a ValueError."""
    if values.shape[-1] != values.shape[-2]:
        raise ValueError(
            f"the pairs (j, i) of {values.shape[-2]} queries and {values.shape[-1]} keys were not given; "
            "only a square index can be transposed"
        )
    return values.mT


@dataclass(frozen=True)
class PairsIndex(Index):
    """Codes given for every pair of one call. Made by calling a :class:`Pairs`.

    Args:
        values: (B or 1, H or 1, N, M) integers in [0, size).
        size: R, the number of codes.
    """

    values: Tensor
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[-2], self.values.shape[-1]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def num_codes(self) -> int:
        return self.size

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self.values[..., rows, :].long()

    @property
    def T(self) -> PairsIndex:
        return replace(self, values=transpose_pairs(self.values))

    def to(self, device: torch.device | str) -> PairsIndex:
        return replace(self, values=self.values.to(device))


@dataclass(frozen=True)
class HopsIndex(Index):
    """Distances given for every pair of nodes of one call. Made by calling a :class:`Hops`.

    Args:
        distances: (B or 1, H or 1, N - P, M - P) int8 or int16, in hops: -1 unreachable, max_distance + 1 far.
        max_distance: the largest distance with a code of its own, in hops.
        prefix_tokens: P.
        one_prefix_code: whether all pairs with a prefix token share one code.
        transposed: whether the codes of prefix tokens are read the other way round.
    """

    distances: Tensor
    max_distance: int
    prefix_tokens: int = 0
    one_prefix_code: bool = False
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        n, m = self.distances.shape[-2:]
        return n + self.prefix_tokens, m + self.prefix_tokens

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.distances.shape[0], self.distances.shape[1]

    @property
    def num_codes(self) -> int:
        return _num_codes(self)

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.max_distance, self.prefix_tokens, self.one_prefix_code

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        p, distances = self.prefix_tokens, self.distances
        top = p  # how many of the rows are of prefix tokens
        if rows == ALL_ROWS:
            distances = distances[..., rows, :]
        else:
            start, stop = rows.start or 0, self.shape[0] if rows.stop is None else rows.stop
            top = min(stop, p) - min(start, p)
            distances = distances[..., max(start - p, 0) : max(stop - p, 0), :]
        codes = torch.nn.functional.pad(distances, (p, 0, top, 0)).long() if p else distances.long()
        codes = torch.where(codes < 0, self.max_distance + 2, codes)
        if p:
            n, m = self.shape
            first = torch.arange(n, device=codes.device)[rows, None]
            second = torch.arange(m, device=codes.device)[None]
            if self.transposed:
                first, second = second, first
            codes = prefix_codes(first, second, p, self.max_distance + 3, codes)
            if self.one_prefix_code:
                codes = codes.clamp(max=self.num_codes - 1)
        return codes

    @property
    def T(self) -> HopsIndex:
        return replace(self, distances=transpose_pairs(self.distances), transposed=not self.transposed)

    def to(self, device: torch.device | str) -> HopsIndex:
        return replace(self, distances=self.distances.to(device))
