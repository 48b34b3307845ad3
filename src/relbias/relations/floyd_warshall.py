"""Distances between all nodes of many small graphs at once, by the algorithm of Floyd and Warshall."""

from __future__ import annotations

import torch
from torch import Tensor

_FAR = {torch.int8: 63, torch.int16: 16383}
"""Farther than any two nodes of a graph of so many. Twice as much fits the dtype; one less than a power of two."""
_STEP = 100_000
"""So many pairs of nodes cost as much time as a step over a node costs apart from its pairs."""
_PAIRS = 2**20
"""At most so many in a group of graphs, which then stays in the processor's cache."""


def floyd_warshall_of_one(edge_index: Tensor, n: int, weights: Tensor | None) -> Tensor:
    """The distances within one graph.

    Args:
        edge_index: (2, E) int64, the nodes i and j of each edge.
        n: the number of nodes, at least 1.
        weights: (E,) floating, how long the edges are; None to count hops.

    Returns:
        (n, n) int8 or int16, with weights float32 or float64; -1 where there is no path.
    """
    block = _nowhere((n, n), n, weights, edge_index.device)
    _put(block.view(-1), edge_index[0] * n + edge_index[1], slice(None, None, n + 1), weights)
    _step_over_all(block)
    return _mark(block)


def floyd_warshall(out: Tensor, graphs: Tensor, sizes: Tensor, edges: Tensor, weights: Tensor | None) -> None:
    """Write the distances within small graphs into the matrices of their batch.

    For every node k in turn, all pairs of nodes take the path over k where it is shorter:
    d(i, j) = min(d(i, j), d(i, k) + d(k, j)). Graphs of about one size do so together.

    Args:
        out: (B, N, N) with -1 everywhere: where there is no path and no node it stays.
        graphs: (b,) int64, the matrices to write.
        sizes: (b,) int64, their numbers of nodes, at least 1.
        edges: (3, E) int64, for each edge the graph, from 0 to b - 1, and the places of its nodes i and j there.
        weights: (E,) floating, how long the edges are; None to count hops.
    """
    device = out.device
    order = sizes.argsort(descending=True, stable=True)
    longest, counts = _groups(sizes.bincount().tolist())
    # Pair (i, j) of the p-th graph in a group of b graphs of n nodes lies at (i n + j) b + p: a step is contiguous.
    groups = torch.tensor([longest, counts], device=device)
    lengths = groups[0] * groups[0] * groups[1]
    group = torch.arange(len(counts), device=device).repeat_interleave(groups[1])
    p = torch.arange(len(order), device=device) - (groups[1].cumsum(0) - groups[1])[group]
    start, n, b = torch.empty_like(sizes.expand(3, -1)).index_copy_(
        1, order, torch.stack(((lengths.cumsum(0) - lengths)[group] + p, *groups[:, group]))
    )

    def pairs(graph: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return start.index_select(0, graph) + (i * n.index_select(0, graph) + j) * b.index_select(0, graph)

    graph = torch.arange(len(sizes), device=device).repeat_interleave(sizes)
    place = torch.arange(len(graph), device=device) - (sizes.cumsum(0) - sizes)[graph]
    flat = _nowhere((int(lengths.sum()),), longest[0], weights, device)
    _put(flat, pairs(*edges), pairs(graph, place, place), weights)
    blocks = [
        block.view(size, size, count)
        for block, size, count in zip(flat.split(lengths.tolist()), longest, counts, strict=True)
    ]
    for block in blocks:
        _step_over_all(block)
    _mark(flat)
    for block, members in zip(blocks, graphs[order].split(counts), strict=True):
        size, _, count = block.shape
        rows = block.view(size * size, count).t().contiguous().view(count, size, size)
        out[members, :size, :size] = rows.to(out.dtype)


def _nowhere(shape: tuple[int, ...], n: int, weights: Tensor | None, device: torch.device) -> Tensor:
    """Distances of graphs of at most n nodes before any edge is there."""
    if weights is None:
        dtype = torch.int8 if n <= _FAR[torch.int8] else torch.int16
        return torch.full(shape, _FAR[dtype], dtype=dtype, device=device)
    dtype = torch.float64 if weights.dtype == torch.float64 else torch.float32  # sums in half precision err
    return torch.full(shape, torch.inf, dtype=dtype, device=device)


def _put(flat: Tensor, edges: Tensor, same: Tensor | slice, weights: Tensor | None) -> None:
    """Write the lengths of the edges, and 0 from each node to itself, where they lie."""
    if weights is None:
        flat[edges] = 1
    else:
        flat.scatter_reduce_(0, edges, weights.to(flat.dtype), "amin")
    flat[same] = 0


def _step_over_all(block: Tensor) -> None:
    """Of (n, n) or (n, n, b): over one node after the other."""
    over = torch.empty_like(block)
    for to, on in zip(block.unsqueeze(2).unbind(1), block.unbind(0), strict=True):
        torch.minimum(block, torch.add(to, on, out=over), out=block)


def _mark(flat: Tensor) -> Tensor:
    """Make -1, in place, of what is far."""
    if flat.is_floating_point():
        return flat.masked_fill_(flat == torch.inf, -1)
    return flat.add_(1).bitwise_and_(_FAR[flat.dtype]).sub_(1)


def _groups(counts: list[int]) -> tuple[list[int], list[int]]:
    """Graphs of about one size together, the largest first: no more padding than one more group would cost.

    Args:
        counts: how many graphs there are of 0, 1, 2, ... nodes.

    Returns:
        The size of the largest graph, and the number of graphs, of each group.
    """
    longest: list[int] = []
    members: list[int] = []
    waste = 0
    for size in range(len(counts) - 1, 0, -1):
        if not counts[size]:
            continue
        if longest:
            waste += counts[size] * (longest[-1] ** 3 - size**3)
        if not longest or waste > size * _STEP:
            longest.append(size)
            members.append(0)
            waste = 0
        members[-1] += counts[size]
    split = [
        (size, min(most, count - begin))
        for size, count in zip(longest, members, strict=True)
        for most in [max(1, _PAIRS // size**2)]
        for begin in range(0, count, most)
    ]
    return [size for size, _ in split], [count for _, count in split]
