"""Sets of edge types between two tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, can_check_values, check_size
from relbias.relations.edges import check_edges
from relbias.relations.pairs import as_pairs, transpose_pairs


@dataclass(frozen=True)
class EdgeSets(Relation):
    """Which types of edges lead from i to j: none, one, or several at once.

    The code of a pair is a set of types, written as bits: bit t, worth 2^t, is set if there is an edge of type t. With
    T types there are 2^T codes.

    Args:
        num_types: T, at most 62.

    Raises:
        ValueError: `num_types` is not an integer from 1 to 62.

    Example:
        >>> sets = EdgeSets(num_types=3)
        >>> sets(torch.tensor([[0, 0b101], [0b010, 0]])).codes()[0, 0]
        tensor([[0, 5],
                [2, 0]])
        >>> edges, types = torch.tensor([[0, 0, 1], [1, 1, 0]]), torch.tensor([0, 2, 1])
        >>> sets.from_edges([(edges, types)], num_tokens=2).codes()[0, 0]  # the same, from a list of edges
        tensor([[0, 5],
                [2, 0]])
    """

    num_types: int

    def __post_init__(self) -> None:
        check_size("EdgeSets' num_types", self.num_types, 1)
        if self.num_types > 62:
            raise ValueError(f"EdgeSets holds a bit per type in an integer, so at most 62 types, got {self.num_types}")

    @property
    def num_codes(self) -> int:
        return 2**self.num_types

    @property
    def index_type(self) -> type[EdgeSetsIndex]:
        return EdgeSetsIndex

    def __call__(self, sets: Tensor) -> EdgeSetsIndex:
        """The index of one call.

        Args:
            sets: (N, M), (B, N, M) or (B, H, N, M) integers in [0, 2^T), the sum of 2^t over the types t of a pair.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a set with other types.
        """
        sets = as_pairs("sets", sets)
        if can_check_values(sets) and sets.numel():
            low, high = int(sets.min()), int(sets.max())
            if low < 0 or high >= self.num_codes:
                raise ValueError(
                    f"EdgeSets({self.num_types}) takes sets from 0 to {self.num_codes - 1}, got "
                    f"{low if low < 0 else high}; give the relation more types or correct the input"
                )
        return EdgeSetsIndex(sets, self.num_types)

    def from_edges(self, graphs: Iterable[tuple[Tensor, Tensor]], num_tokens: int) -> EdgeSetsIndex:
        """The index of a batch, from the edges of each of its graphs.

        Args:
            graphs: B pairs of edge_index, (2, E) integers, the tokens i (query) and j (key) of each edge, and types,
                (E,) integers in [0, T). Edges of several types may join two tokens; one given twice counts once.
            num_tokens: N = M, that of the longest of the graphs.

        Raises:
            ValueError: another shape or dtype, no graph, or (on CPU, outside compile and export) a token or type out
                of range.
        """
        check_size("EdgeSets' num_tokens", num_tokens, 0)
        sets = [self._sets(edge_index, types, num_tokens) for edge_index, types in graphs]
        if not sets:
            raise ValueError("EdgeSets.from_edges takes a list of at least one graph, got none")
        return EdgeSetsIndex(torch.stack(sets)[:, None], self.num_types)

    def _sets(self, edge_index: Tensor, types: Tensor, num_tokens: int) -> Tensor:
        edge_index, types = check_edges(edge_index, types, num_tokens, self.num_types)
        # An edge given twice must not add its bit twice.
        edges = ((edge_index[0] * num_tokens + edge_index[1]) * self.num_types + types).unique()
        sets = torch.zeros(num_tokens * num_tokens, dtype=torch.int64, device=types.device)
        bits = torch.ones_like(edges) << edges % self.num_types
        return sets.scatter_add(0, edges // self.num_types, bits).view(num_tokens, num_tokens)


@dataclass(frozen=True)
class EdgeSetsIndex(Index):
    """The sets of edge types of one call. Made by calling an :class:`EdgeSets`.

    Args:
        sets: (B or 1, H or 1, N, M) integers, whose bits are the types.
        num_types: T.
        first: the type of the codes' lowest bit; the types before it are left out.
    """

    sets: Tensor
    num_types: int
    first: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.sets.shape[-2], self.sets.shape[-1]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.sets.shape[0], self.sets.shape[1]

    @property
    def num_codes(self) -> int:
        return 2**self.num_types

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self.sets[..., rows, :].long() >> self.first & self.num_codes - 1

    def types(self, first: int, count: int) -> EdgeSetsIndex:
        """The index of `count` types from `first` on, with 2^count codes."""
        return replace(self, num_types=count, first=self.first + first)

    @property
    def T(self) -> EdgeSetsIndex:
        return replace(self, sets=transpose_pairs(self.sets))

    def to(self, device: torch.device | str) -> EdgeSetsIndex:
        return replace(self, sets=self.sets.to(device))
