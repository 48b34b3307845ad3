"""Numbers of hops between all nodes of graphs of any size, by a breadth-first search on bits."""

from __future__ import annotations

import torch
from torch import Tensor

_WORDS = 2**21
"""At most so many words of 64 pairs of nodes in a group of graphs of more than one."""
_BLOCK = 2**20
"""Pairs of nodes whose hops are read off their bits at a time."""


def breadth_first(out: Tensor, graphs: Tensor, sizes: Tensor, edges: Tensor, max_distance: int | None) -> None:
    """Write the hops within graphs into the matrices of their batch.

    The nodes that a node reaches within d hops are itself and what its neighbours reach within d - 1; such sets are
    bits, 64 in a word, and one step joins those of all nodes. Each pair counts, on bits as well, the steps since it was
    reached.

    Args:
        out: (B, N, N) int8 or int16 with -1 everywhere: where there is no path and no node it stays.
        graphs: (b,) int64, the matrices to write.
        sizes: (b,) int64, their numbers of nodes, at least 1.
        edges: (3, E) int64, for each edge the graph, from 0 to b - 1, and the places of its nodes i and j there.
        max_distance: what is farther counts max_distance + 1, and the search ends there; None for no limit.
    """
    order = sizes.argsort(descending=True, stable=True)
    counts = _groups(sizes[order].tolist())
    if len(counts) == 1:
        _search(out, graphs, sizes, edges, max_distance)
        return
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    edges = torch.stack((place[edges[0]], edges[1], edges[2]))
    begin = 0
    for members in order.split(counts):
        there = (edges[0] >= begin) & (edges[0] < begin + len(members))
        graph, i, j = edges[:, there]
        _search(out, graphs[members], sizes[members], torch.stack((graph - begin, i, j)), max_distance)
        begin += len(members)


def _groups(sizes: list[int]) -> list[int]:
    """How many graphs to search together, the largest first: no graph at less than half the size of the largest."""
    counts: list[int] = []
    largest = words = 0
    for size in sizes:
        words += size * -(-largest // 64)
        if not counts or 2 * size < largest or words > _WORDS:
            counts.append(0)
            largest, words = size, size * -(-size // 64)
        counts[-1] += 1
    return counts


def _search(out: Tensor, graphs: Tensor, sizes: Tensor, edges: Tensor, max_distance: int | None) -> None:
    device, n = out.device, int(sizes.max())
    starts = sizes.cumsum(0) - sizes
    graph = torch.arange(len(sizes), device=device).repeat_interleave(sizes)
    place = torch.arange(len(graph), device=device) - starts[graph]
    sources, targets = _once(starts[edges[0]] + edges[1], starts[edges[0]] + edges[2], len(graph))
    # Nodes with more neighbours come first, so that those with a k-th neighbour are rows from 0 on.
    degrees = sources.bincount(minlength=len(graph))
    order = degrees.argsort(descending=True)
    row = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=device))
    neighbours = _neighbours(row[sources], row[targets], degrees[order])
    place = place[order]
    bits = torch.zeros(len(graph), -(-n // 64) * 8, dtype=torch.uint8, device=device)
    bits[torch.arange(len(graph), device=device), place >> 3] = (1 << (place & 7)).to(torch.uint8)
    itself = bits.view(torch.int64)
    reached, before, steps = itself.clone(), itself.clone(), 0
    digits: list[Tensor] = []
    while True:
        _flip(digits, reached, steps)
        if steps != max_distance:
            _join(reached, before, neighbours)
        if torch.equal(reached, before):
            break
        before.copy_(reached)
        steps += 1
    del before
    if steps == max_distance:
        reached = _reachable(itself, reached, neighbours, torch.stack((row[sources], row[targets])))
    lines = graphs[graph[order]] * out.shape[1] + place
    _read_off(out.view(-1, out.shape[2])[:, :n], lines, digits, steps + 1, reached)


def _once(sources: Tensor, targets: Tensor, num_nodes: int) -> Tensor:
    """Each edge once, ordered by its first node, and none from a node to itself."""
    keys = torch.unique(sources * num_nodes + targets)
    edges = torch.stack((keys.div(num_nodes, rounding_mode="floor"), keys % num_nodes))
    return edges[:, edges[0] != edges[1]]


def _neighbours(sources: Tensor, targets: Tensor, degrees: Tensor) -> list[Tensor]:
    """For k = 0, 1, ... the k-th neighbour of each row that has so many, given each row's degree, descending."""
    by_row = sources.argsort(stable=True)
    k = torch.arange(len(by_row), device=degrees.device) - (degrees.cumsum(0) - degrees)[sources[by_row]]
    by_k = k.argsort(stable=True)
    return list(targets[by_row[by_k]].split(k.bincount().tolist()))


def _join(reached: Tensor, before: Tensor, neighbours: list[Tensor]) -> None:
    """Add to what each row reaches what its neighbours reached before."""
    if reached.shape[1] == 1:  # choosing numbers is quicker than choosing rows of one number
        reached, before = reached[:, 0], before[:, 0]
    taken = torch.empty_like(reached)
    for rows in neighbours:
        reached[: len(rows)] |= torch.index_select(before, 0, rows, out=taken[: len(rows)])


def _flip(digits: list[Tensor], reached: Tensor, steps: int) -> None:
    """In the Gray code of a number, of which one digit changes from a number to the next, flip the digit that changes.

    Flipped where a pair is reached in each step from its distance d on, before step L, the digits are those in which
    the codes of d and L differ; all are 0 where it was never reached.
    """
    digit = ((steps + 1) & -(steps + 1)).bit_length() - 1
    if digit == len(digits):
        digits.append(torch.zeros_like(reached))
    digits[digit] ^= reached


def _reachable(itself: Tensor, reached: Tensor, neighbours: list[Tensor], edges: Tensor) -> Tensor:
    """What each row reaches in any number of steps, as bits: itself in no step, `reached` in some."""
    sources, targets = edges
    num_rows = len(itself)
    if torch.equal((sources * num_rows + targets).sort().values, (targets * num_rows + sources).sort().values):
        component = _components(edges, num_rows)
        return torch.zeros_like(itself).index_add_(0, component, itself)[component]  # no bit is there twice
    while True:
        before = reached.clone()
        _join(reached, reached, neighbours)
        if torch.equal(reached, before):
            return reached


def _components(edges: Tensor, num_rows: int) -> Tensor:
    """(num_rows,) int64, the same number for two rows of one connected component; the edges go both ways."""
    component = torch.arange(num_rows, device=edges.device)
    while True:
        low, high = component[edges].sort(0).values
        if torch.equal(low, high):
            return component
        # The root of a component goes under the lowest root beside it, then every row to its root.
        component.scatter_reduce_(0, high, low, "amin")
        while not torch.equal(component, above := component[component]):
            component = above


def _read_off(out: Tensor, lines: Tensor, digits: list[Tensor], end: int, reachable: Tensor) -> None:
    """Write the distances, and -1 where nothing is reachable, into the lines of `out` for each row of bits.

    Args:
        out: (lines, n).
        lines: (V,) int64.
        digits: (V, W) int64 each, those in which the Gray codes of the distance and of `end` differ.
        end: one more than the steps taken, the distance where no step reached.
        reachable: (V, W) int64, bits.
    """
    n = out.shape[1]
    gray = end ^ (end >> 1)
    spread = ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).to(torch.uint8).view(torch.int64)[:, 0]
    spread = spread.to(out.device)  # the eight bits of a byte, each in a byte of a word
    most = max(1, _BLOCK // n)
    for begin in range(0, len(lines), most):
        rows = slice(begin, begin + most)

        def in_bytes(bits: Tensor) -> Tensor:
            indices = bits.view(torch.uint8)[:, : -(-n // 8)].int()
            return spread.index_select(0, indices.view(-1)).view(indices.shape)

        nowhere = in_bytes(~reachable[rows]) * 255
        low, high = nowhere, nowhere
        binary = torch.zeros_like(reachable[rows])
        for k in range(len(digits) - 1, -1, -1):
            binary = binary ^ digits[k][rows]
            if gray >> k & 1:
                binary = ~binary
            if k < 8:
                low = low | in_bytes(binary) << k
            else:
                high = high | in_bytes(binary) << (k - 8)
        values = low.view(torch.int8)
        if len(digits) > 7:
            values = low.view(torch.uint8).to(torch.int16) | high.view(torch.int8).to(torch.int16) << 8
        out[lines[rows]] = values[:, :n].to(out.dtype)
