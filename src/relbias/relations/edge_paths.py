"""The edges on a shortest path between two nodes of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, can_check_values, check_size
from relbias.relations.edges import check_edges
from relbias.relations.pairs import transpose_pairs


@dataclass(frozen=True)
class EdgePaths(Relation):
    """The types of the edges on a shortest path from i to j, in their order.

    There are no codes, so that encodings with a table refuse it.

    Args:
        num_types: T; types are integers in [0, T).
        max_edges: L, how many edges of a path count, its first.
        prefix_tokens: P, the number of tokens before the nodes. The index covers them; the paths given do not. No path
            leads to a prefix token or away from it.

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> edges, types = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([7, 7, 9, 9])
        >>> distances, paths = typed_paths(edges, types, num_nodes=3, max_edges=2)
        >>> index = EdgePaths(num_types=10, max_edges=2)(paths)
        >>> index.paths(slice(0, 1))[0, 0]  # from node 0 to each node
        tensor([[-1, -1],
                [ 7, -1],
                [ 7,  9]])
    """

    num_types: int
    max_edges: int
    prefix_tokens: int = 0
    num_codes = None

    def __post_init__(self) -> None:
        check_size("EdgePaths' num_types", self.num_types, 1)
        check_size("EdgePaths' max_edges", self.max_edges, 1)
        check_size("EdgePaths' prefix_tokens", self.prefix_tokens, 0)

    @property
    def index_type(self) -> type[EdgePathsIndex]:
        return EdgePathsIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.num_types, self.max_edges

    def __call__(self, paths: Tensor) -> EdgePathsIndex:
        """The index of one call.

        Args:
            paths: (N, M, L) or (B, N, M, L) integers in [0, T), and -1 after the path's last edge. With prefix tokens,
                of the nodes only.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a type out of range or after the
                end.
        """
        paths = torch.as_tensor(paths)
        if paths.dtype.is_floating_point or paths.dtype.is_complex or not paths.dtype.is_signed:
            raise ValueError(f"paths must be signed integers, got {paths.dtype}; convert them with .long()")
        if paths.ndim not in (3, 4) or paths.shape[-1] != self.max_edges:
            raise ValueError(
                f"paths must have shape (N, M, {self.max_edges}) or (B, N, M, {self.max_edges}), "
                f"got {tuple(paths.shape)}"
            )
        if can_check_values(paths) and paths.numel():
            low, high = int(paths.min()), int(paths.max())
            if low < -1 or high >= self.num_types:
                raise ValueError(
                    f"paths hold types from 0 to {self.num_types - 1}, and -1 after their end, got {low} to {high}"
                )
            if bool(((paths[..., 1:] >= 0) & (paths[..., :-1] < 0)).any()):
                raise ValueError("a path has an edge after its end, which is the first -1; give its edges first")
        paths = paths if paths.ndim == 4 else paths[None]
        p = self.prefix_tokens
        return EdgePathsIndex(torch.nn.functional.pad(paths, (0, 0, p, 0, p, 0), value=-1), self.num_types)


@dataclass(frozen=True)
class EdgePathsIndex(Index):
    """The paths between all pairs of one call. Made by calling an :class:`EdgePaths`.

    Args:
        values: (B or 1, N, M, L) integers, -1 after the end.
        num_types: T.
    """

    values: Tensor
    num_types: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[1], self.values.shape[2]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.values.shape[0], 1

    @property
    def num_codes(self) -> None:
        return None

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.num_types, self.values.shape[-1]

    def paths(self, rows: slice = ALL_ROWS) -> Tensor:
        """The types of the edges of some rows, (B or 1, n, M, L) int64, -1 after the end."""
        return self.values[:, rows].long()

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        raise ValueError("paths have several types each and no codes; use an encoding over EdgePaths, or Hops")

    @property
    def T(self) -> EdgePathsIndex:
        return replace(self, values=transpose_pairs(self.values.movedim(-1, 1)).movedim(1, -1))

    def to(self, device: torch.device | str) -> EdgePathsIndex:
        return replace(self, values=self.values.to(device))


def typed_paths(edge_index: Tensor, types: Tensor, num_nodes: int, max_edges: int) -> tuple[Tensor, Tensor]:
    """The shortest paths between all nodes of a graph, for `Hops` and `EdgePaths`.

    Of several shortest paths it takes the one whose last edge comes first in the list, and so on backwards. One level
    after the other; a level takes E N steps.

    Args:
        edge_index: (2, E) integers, the nodes i and j of each edge. An undirected edge is given in both directions.
        types: (E,) integers, at least 0.
        num_nodes: N.
        max_edges: L, how many edges of a path to keep, its first.

    Returns:
        The distances, (N, N) int64, in edges, -1 where there is no path; and the types of the edges of the paths,
        (N, N, L) int64, -1 after the end.

    Raises:
        ValueError: another shape or dtype, or (on CPU, outside compile and export) a node or a type out of range.

    Example:
        >>> distances, paths = typed_paths(torch.tensor([[0, 1], [1, 2]]), torch.tensor([5, 6]), 3, max_edges=4)
        >>> distances
        tensor([[ 0,  1,  2],
                [-1,  0,  1],
                [-1, -1,  0]])
        >>> paths[0, 2]
        tensor([ 5,  6, -1, -1])
    """
    check_size("typed_paths' num_nodes", num_nodes, 0)
    check_size("typed_paths' max_edges", max_edges, 1)
    edge_index, types = check_edges(edge_index, types, num_nodes, torch.iinfo(torch.int64).max)
    sources, targets = edge_index
    n, num_edges, device = num_nodes, len(types), types.device
    distances = torch.full((n, n), -1, dtype=torch.int64, device=device).fill_diagonal_(0)
    paths = torch.full((n, n, max_edges), -1, dtype=torch.int64, device=device)
    numbers = torch.arange(num_edges, device=device).expand(n, -1)
    for length in range(1, n if num_edges else 1):
        arrives = distances[:, sources] == length - 1  # (N, E): the edge goes on where a path of i ends
        last = torch.full((n, n), num_edges, device=device).scatter_reduce(
            1, targets.expand(n, -1), torch.where(arrives, numbers, num_edges), "amin"
        )
        i, j = ((last < num_edges) & (distances < 0)).nonzero(as_tuple=True)
        if not len(i):
            break
        edges = last[i, j]
        distances[i, j] = length
        paths[i, j] = paths[i, sources[edges]]
        if length <= max_edges:
            paths[i, j, length - 1] = types[edges]
    return distances, paths
