"""Paths that share their beginnings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.relations.base import can_check_values


@dataclass(frozen=True)
class PathForest:
    """R paths, each one edge longer than another of them or than path 0, which has no edge.

    Args:
        parents: (R + 1,) int64, the path without its last edge; 0 for path 0.
        kinds: (R + 1,) int64 in [0, K), the kind of the last edge; any for path 0.
        depths: (R + 1,) int64, the number of edges.
        edges: (K, C) int64 types, or (K, F) floating features, what is known of an edge of a kind.
        starts: the first paths of 1, 2, ... edges, and R + 1, if paths are sorted by their number of edges, else None.
    """

    parents: Tensor
    kinds: Tensor
    depths: Tensor
    edges: Tensor
    starts: tuple[int, ...] | None = None

    def to(self, device: torch.device | str) -> PathForest:
        """The same forest on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("parents", "kinds", "depths", "edges")}
        return replace(self, **moved)


def depths_of(parents: Tensor, longest: int) -> Tensor:
    """The number of edges of each path, from its parents, (R + 1,) int64 in any order: (R + 1,) int64.

    Args:
        parents: as in `PathForest`.
        longest: how many edges a path may have.

    Raises:
        ValueError: (on CPU, outside compile and export) a path has more edges, or itself as a beginning.
    """
    ancestors = parents  # those by 1, 2, 4, ... edges shorter
    depths = (torch.arange(parents.shape[0], device=parents.device) > 0).long()
    for _ in range(longest.bit_length()):
        depths = depths + depths.index_select(0, ancestors)
        ancestors = ancestors.index_select(0, ancestors)
    if can_check_values(depths) and (bool(ancestors.any()) or int(depths.max()) > longest):
        raise ValueError(f"a path has more than {longest} edges; correct the parents of paths")
    return depths


def sorted_forest(forest: PathForest, max_edges: int, *, merge: bool) -> tuple[PathForest, Tensor]:
    """The forest of the paths' first edges, sorted by their number, and where the paths are there.

    Args:
        forest: of R paths in any order.
        max_edges: L, how many edges of a path count, its first.
        merge: whether paths with edges of the same kinds become one.

    Returns:
        The sorted forest, and (R + 1,) int64, the number that each path has in it.
    """
    order, stop, *counts = forest.depths.argsort(stable=True), *torch.bincount(forest.depths).tolist()
    places = torch.zeros_like(forest.parents)
    parents, kinds, starts = [places[:1]], [places[:1]], [1]
    num_kinds = len(forest.edges)
    for depth, count in enumerate(counts, start=1):
        paths = order[stop : stop + count]
        stop += count
        before = places.index_select(0, forest.parents.index_select(0, paths))
        if depth > max_edges:
            places[paths] = before
            continue
        last = forest.kinds.index_select(0, paths)
        numbers = torch.arange(count, device=paths.device)
        if merge:
            keys, numbers = _distinct(before * num_kinds + last, starts[-1] * num_kinds)
            before, last = keys // num_kinds, keys % num_kinds
        places[paths] = starts[-1] + numbers
        parents.append(before)
        kinds.append(last)
        starts.append(starts[-1] + len(before))
    lengths = torch.tensor([len(part) for part in parents], device=places.device)
    depths = torch.arange(len(parents), device=places.device).repeat_interleave(lengths)
    return PathForest(torch.cat(parents), torch.cat(kinds), depths, forest.edges, tuple(starts)), places


def _distinct(keys: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The keys that occur, ascending, and the place of each key among them; keys are in [0, limit)."""
    if limit > 4 * len(keys):
        return torch.unique(keys, return_inverse=True)
    seen = keys.new_zeros(limit).index_fill(0, keys, 1)  # several times faster than sorting
    return seen.nonzero()[:, 0], (seen.cumsum(0) - 1).index_select(0, keys)
