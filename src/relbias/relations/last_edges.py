"""The last edges of shortest paths."""

from __future__ import annotations

import torch
from torch import Tensor

_NUMBERS_PER_BLOCK = 2**22
"""How many pairs of a first node and an edge are looked at at once."""


def last_edges(edges: tuple[Tensor, Tensor, Tensor], distances: Tensor) -> Tensor:
    """The last edge of a shortest path between all nodes: of several the one that comes first in the list.

    So of several shortest paths that one is chosen whose last edge comes first in the list of edges, of those that one
    whose last edge but one comes first, and so on backwards.

    Args:
        edges: the graph of each edge, and its nodes i and j there, (E,) int64 each.
        distances: (B, N, N) integers, in edges, -1 where there is no path.

    Returns:
        (B, N, N) int32, the number of the edge in the list; -1 where there is no path, none that one edge prolongs to
        the distance given, or i is j.
    """
    graph, first, second = edges
    count, n, _ = distances.shape
    num_edges = len(graph)
    ends = graph * n + second
    chosen = torch.empty(count, n, n, dtype=torch.int32, device=distances.device)
    numbers = torch.arange(num_edges, dtype=torch.int32, device=distances.device)[:, None]
    size = max(1, _NUMBERS_PER_BLOCK // max(1, num_edges))
    for start in range(0, n, size):
        # By the last node of the path, and of the rows i of a block.
        arriving = distances[:, start : start + size].mT.contiguous()  # (B, N, i)
        before = arriving[graph, first]  # (E, i)
        goes_on = (before >= 0) & (arriving[graph, second] == before + 1)
        candidates = numbers.where(goes_on, num_edges)
        found = candidates.new_full((count * n, candidates.shape[1]), num_edges)
        found = found.scatter_reduce(0, ends[:, None].expand_as(candidates), candidates, "amin")
        chosen[:, start : start + size] = found.view(count, n, -1).mT
    return chosen.masked_fill(chosen == num_edges, -1)
