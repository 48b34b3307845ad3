"""The edges on a shortest path between two nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, as_integers, can_check_values, check_size
from relbias.relations.edge_data import edge_categories, edge_features
from relbias.relations.graph_batch import GraphBatch, GraphRelation
from relbias.relations.kept import plain_numbers
from relbias.relations.pairs import transpose_pairs
from relbias.relations.path_forest import PathForest, depths_of, sorted_forest


@dataclass(frozen=True)
class EdgePaths(GraphRelation):
    """The edges on a shortest path from i to j, in their order, by their types or features.

    An index numbers the paths that are there: 0 where there is none, then those of one edge, of two, and so on. Paths
    whose edges have the same types share a number. What a number means holds for that index only, so that encodings
    with a table refuse the relation.

    Args:
        num_types: T, types are integers in [0, T); or that of each of C columns, for edges of several properties. None
            for edges with features.
        max_edges: L, how many edges of a path count, its first.
        prefix_tokens: P, the number of tokens before the nodes. The index covers them; the paths given do not. No path
            leads to a prefix token or away from it.
        num_features: F, the real numbers of an edge, instead of types.

    Raises:
        ValueError: a size is too small or not an integer, or there are both types and features or neither.

    Example:
        >>> edges, types = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([7, 7, 9, 9])
        >>> graphs = GraphBatch(edges, num_nodes=3, edge_attr=types)
        >>> index = EdgePaths(num_types=10, max_edges=2).of_graphs(graphs)
        >>> index.codes()[0, 0]  # the paths: 1 of an edge of type 7, 2 of type 9, 3 of 7 and 9, 4 of 9 and 7
        tensor([[0, 1, 3],
                [1, 0, 2],
                [4, 2, 0]])
        >>> index.forest.parents.tolist(), index.forest.edges[index.forest.kinds][1:, 0].tolist()
        ([0, 0, 0, 1, 2], [7, 9, 9, 7])
    """

    num_types: int | Iterable[int] | None = None
    max_edges: int = 5
    prefix_tokens: int = 0
    num_features: int | None = None
    num_codes = None

    def __post_init__(self) -> None:
        check_size("EdgePaths' max_edges", self.max_edges, 1)
        check_size("EdgePaths' prefix_tokens", self.prefix_tokens, 0)
        if (self.num_types is None) == (self.num_features is None):
            raise ValueError(
                f"EdgePaths takes edges with num_types or with num_features, got {self.num_types!r} and "
                f"{self.num_features!r}; give one of them"
            )
        if self.num_features is not None:
            check_size("EdgePaths' num_features", self.num_features, 1)
            return
        if isinstance(self.num_types, Iterable):
            object.__setattr__(self, "num_types", tuple(self.num_types))
            check_size("EdgePaths' columns", len(self.columns), 1)
        for types in self.columns:
            check_size("EdgePaths' num_types", types, 1)

    @property
    def columns(self) -> tuple[int, ...]:
        """The number of types in each column, (); without types."""
        if self.num_types is None:
            return ()
        return tuple(self.num_types) if isinstance(self.num_types, Iterable) else (self.num_types,)

    @property
    def index_type(self) -> type[EdgePathsIndex]:
        return EdgePathsIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.columns, self.num_features, self.max_edges

    @torch.compiler.disable  # what paths there are is only known from the values
    def of_graphs(self, graphs: GraphBatch) -> EdgePathsIndex:
        """The index of a batch of graphs.

        Of several shortest paths it takes the one whose last edge comes first in `edge_index`, and so on backwards, or
        those of `graphs.pairs["last_edges"]` where it is there.

        Args:
            graphs: the batch. `edge_attr` holds the types, (E,) or (E, C) whole numbers in any dtype, or the features,
                (E, F) floating. Without it all edges have type 0, which takes T = 1.

        Raises:
            ValueError: edge_attr is missing or of another shape or dtype, or (on CPU, outside compile and export) a
                type is out of range or a feature not finite.
        """
        edges, kinds = self._kinds(graphs.edge_attr, graphs.edge_index[0])
        _, sources, targets = graphs.edges()
        last = graphs.last_edges
        there = (last.flatten() >= 0).nonzero()[:, 0]
        numbers = there.new_zeros(last.numel())  # of the path of each pair
        numbers[there] = torch.arange(1, len(there) + 1, device=there.device)
        chosen = last.flatten().index_select(0, there)
        before = there + (sources - targets).index_select(0, chosen)  # the pair of i and the node before j
        first = there.new_zeros(1)
        parents = torch.cat((first, numbers.index_select(0, before)))
        kinds = torch.cat((first, kinds.index_select(0, chosen)))
        forest = PathForest(parents, kinds, depths_of(parents, max(graphs.longest - 1, 0)), edges)
        return self._sorted(numbers.view(last.shape), forest)

    def __call__(self, paths: Tensor, parents: Tensor, edges: Tensor) -> EdgePathsIndex:
        """The index of one call, from R paths of at most L edges of which each prolongs another.

        Args:
            paths: (N, M) or (B, N, M) integers in [0, R), the path from i to j, -1 where there is none. With prefix
                tokens, of the nodes only.
            parents: (R,), or (B, R) for other paths in each item, integers: the path without its last edge, -1 for a
                path of one edge.
            edges: (R,) or (R, C), or with a batch axis as `parents`, the last edge's types, or (R, F) its features.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a number or type out of range,
                or a path of more than L edges.
        """
        paths, parents, edges = as_integers("paths", paths), as_integers("parents", parents), torch.as_tensor(edges)
        if paths.ndim not in (2, 3):
            raise ValueError(f"paths must have shape (N, M) or (B, N, M), got {tuple(paths.shape)}")
        paths = (paths if paths.ndim == 3 else paths[None]).long()
        if parents.ndim not in (1, 2) or (parents.ndim == 2 and parents.shape[0] != paths.shape[0]):
            raise ValueError(f"parents must have shape (R,) or ({paths.shape[0]}, R), got {tuple(parents.shape)}")
        if edges.shape[: parents.ndim] != parents.shape:
            raise ValueError(
                f"the edges of paths have the shape of parents, {tuple(parents.shape)}, first, got {tuple(edges.shape)}"
            )
        size = parents.shape[-1]
        for name, values in (("paths", paths), ("parents", parents)):
            if can_check_values(values) and values.numel() and (int(values.min()) < -1 or int(values.max()) >= size):
                raise ValueError(f"{name} are from -1 to {size - 1}, got {int(values.min())} to {int(values.max())}")
        if parents.ndim == 2:
            offsets = size * torch.arange(parents.shape[0], device=parents.device)
            paths = (paths + offsets[:, None, None]).where(paths >= 0, -1)
            parents = (parents + offsets[:, None]).where(parents >= 0, -1)
            edges = edges.flatten(0, 1)
        parents = torch.nn.functional.pad(parents.flatten().long() + 1, (1, 0))
        edges, kinds = self._kinds(edges, parents[1:])
        kinds = torch.nn.functional.pad(kinds, (1, 0))
        forest = PathForest(parents, kinds, depths_of(parents, self.max_edges), edges)
        # What is compiled or exported does not depend on values, such as how many paths there are of each length.
        made = self._sorted if plain_numbers(paths.device) else self._index
        return made(paths + 1, forest)

    def _kinds(self, edge_attr: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
        """What is known of the edges of each of K kinds, (K, ...), and the kind of each edge, (E,), as `like` is."""
        count = like.shape[0]
        if self.num_features is not None:
            return edge_features(edge_attr, self.num_features, count), torch.arange(count, device=like.device)
        types = edge_categories(edge_attr, self.columns, count, all_columns=True).to(like.device)
        if not plain_numbers(like.device):
            return types, torch.arange(count, device=like.device)
        kinds, number = types[:, 0], self.columns[0]
        for column, size in zip(types.unbind(dim=1)[1:], self.columns[1:], strict=True):
            found, kinds = torch.unique(kinds * size + column, return_inverse=True)
            number = len(found)
        # A type that no edge has stands for nothing, and any will do.
        return types.new_zeros(number, len(self.columns)).index_put((kinds,), types), kinds

    def _sorted(self, numbers: Tensor, forest: PathForest) -> EdgePathsIndex:
        forest, places = sorted_forest(forest, self.max_edges, merge=self.num_features is None)
        return self._index(places.index_select(0, numbers.flatten()).view(numbers.shape), forest)

    def _index(self, numbers: Tensor, forest: PathForest) -> EdgePathsIndex:
        p = self.prefix_tokens
        numbers = torch.nn.functional.pad(numbers, (p, 0, p, 0)).int()
        return EdgePathsIndex(numbers, forest, self.code_space)


@dataclass(frozen=True)
class EdgePathsIndex(Index):
    """The paths between all pairs of one call. Made by calling an :class:`EdgePaths`.

    Args:
        values: (B or 1, N, M) int32 in [0, R], the path of each pair, 0 where there is none.
        forest: the R paths.
        space: what fixes the meaning of edges, as the relation's `code_space`.
    """

    values: Tensor
    forest: PathForest
    space: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[1], self.values.shape[2]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.values.shape[0], 1

    @property
    def num_codes(self) -> int:
        return self.forest.parents.shape[0]

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.space

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self.values[:, None, rows].long()

    @property
    def T(self) -> EdgePathsIndex:
        return replace(self, values=transpose_pairs(self.values))

    def to(self, device: torch.device | str) -> EdgePathsIndex:
        return replace(self, values=self.values.to(device), forest=self.forest.to(device))
