"""Distances in space between tokens of some types."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, can_check_values, check_size
from relbias.relations.graph_batch import GraphBatch, GraphRelation
from relbias.relations.graph_features import pairwise_distances
from relbias.relations.pairs import as_pairs, transpose_pairs


@dataclass(frozen=True)
class Distances(GraphRelation):
    """The distance in space between two tokens, and the type of their pair, for example of two elements' atoms.

    The code of a pair is its type. Pairs with a prefix token (a graph token), which lies nowhere, have distance 0 and
    one more type, the last.

    Args:
        num_types: T, the number of types of pairs.
        prefix_tokens: P, the number of tokens before the others. The index covers them; the distances given do not.

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> from relbias.relations import pairwise_distances
        >>> coordinates = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]])
        >>> atoms = torch.tensor([0, 1])
        >>> index = Distances(num_types=4)(pairwise_distances(coordinates), 2 * atoms[:, None] + atoms)
        >>> index.distances()
        tensor([[[0., 5.],
                 [5., 0.]]])
        >>> index.codes()[0, 0]
        tensor([[0, 1],
                [2, 3]])
    """

    num_types: int = 1
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        check_size("Distances' num_types", self.num_types, 1)
        check_size("Distances' prefix_tokens", self.prefix_tokens, 0)

    @property
    def num_codes(self) -> int:
        return self.num_types + min(self.prefix_tokens, 1)

    @property
    def index_type(self) -> type[DistancesIndex]:
        return DistancesIndex

    def of_graphs(self, graphs: GraphBatch) -> DistancesIndex:
        """The index of a batch of graphs whose nodes lie in space, with one type of pairs.

        Args:
            graphs: the batch. `pos`, (V, S), holds where the nodes lie.

        Raises:
            ValueError: there is no pos, or not a row for each node, or (on CPU, outside compile and export) it is not
                finite.
        """
        if graphs.pos is None:
            raise ValueError("the graphs have no pos, expected (V, S) coordinates; give pos, or use another relation")
        if graphs.pos.ndim != 2 or len(graphs.pos) != graphs.num_nodes:
            raise ValueError(f"pos has shape ({graphs.num_nodes}, S), got {tuple(graphs.pos.shape)}")
        return self(pairwise_distances(graphs.padded_nodes(graphs.pos, 0.0)))

    def __call__(self, distances: Tensor, types: Tensor | None = None) -> DistancesIndex:
        """The index of one call.

        Args:
            distances: (N, M) or (B, N, M), floating, finite, in a unit of your choice. With prefix tokens, of the
                others only.
            types: of the same shape or without its batch axis, integers in [0, T); needed if there is more than one.

        Raises:
            ValueError: another shape or dtype, missing types, or (on CPU, outside compile and export) a distance that
                is not finite or a type out of range.
        """
        distances = torch.as_tensor(distances)
        if not distances.dtype.is_floating_point:
            raise ValueError(f"distances must be floating, got {distances.dtype}; convert them with .float()")
        if distances.ndim not in (2, 3):
            raise ValueError(f"distances must have shape (N, M) or (B, N, M), got {tuple(distances.shape)}")
        distances = distances if distances.ndim == 3 else distances[None]
        if can_check_values(distances) and not bool(distances.isfinite().all()):
            raise ValueError("distances must be finite, got nan or inf; correct the coordinates")
        if types is None:
            if self.num_types > 1:
                raise ValueError(f"Distances({self.num_types}) needs the types of the pairs; pass types=")
            types = torch.zeros(1, 1, 1, dtype=torch.int64, device=distances.device).expand(1, *distances.shape[1:])
        else:
            types = as_pairs("types", types)
            if types.shape[1] > 1:
                raise ValueError(f"types must have shape (N, M) or (B, N, M), got {tuple(types.shape)}")
            types = types[:, 0]
        if types.shape[1:] != distances.shape[1:] or types.shape[0] not in (1, distances.shape[0]):
            raise ValueError(
                f"the types of pairs have shape {tuple(types.shape)}, which does not fit the distances' "
                f"{tuple(distances.shape)}"
            )
        if can_check_values(types) and types.numel():
            low, high = int(types.min()), int(types.max())
            if low < 0 or high >= self.num_types:
                raise ValueError(
                    f"Distances({self.num_types}) takes types from 0 to {self.num_types - 1}, got {low} to {high}"
                )
        p = self.prefix_tokens
        if p:
            distances = torch.nn.functional.pad(distances, (p, 0, p, 0))
            types = torch.nn.functional.pad(types, (p, 0, p, 0), value=self.num_types)
        return DistancesIndex(distances, types, self.num_codes)


@dataclass(frozen=True)
class DistancesIndex(Index):
    """Distances and types given for every pair of one call. Made by calling a :class:`Distances`.

    Args:
        values: (B or 1, N, M), floating, the distances.
        types: (B or 1, N, M) integers in [0, size).
        size: R, the number of types.
    """

    values: Tensor
    types: Tensor
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[1], self.values.shape[2]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.values.shape[0], 1

    @property
    def num_codes(self) -> int:
        return self.size

    def distances(self, rows: slice = ALL_ROWS) -> Tensor:
        """The distances of some rows, (B or 1, n, M), in the dtype in which they were given."""
        return self.values[:, rows]

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self.types[:, None, rows].long()

    @property
    def T(self) -> DistancesIndex:
        return replace(self, values=transpose_pairs(self.values), types=transpose_pairs(self.types))

    def to(self, device: torch.device | str) -> DistancesIndex:
        return replace(self, values=self.values.to(device), types=self.types.to(device))
