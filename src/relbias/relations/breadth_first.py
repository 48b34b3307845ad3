"""Numbers of hops between all nodes of graphs of any size, by a breadth-first search on bits."""

from __future__ import annotations

import importlib.util
import sys
from typing import NamedTuple

import torch
from torch import Tensor

from relbias.relations.dijkstra import dijkstra

_GROUP = 2**19
"""At most so many words of 64 pairs of nodes in a group of graphs of more than one."""
_WORDS = 2**16
"""At most about so many words in a block of targets that is searched for alone, which bounds the memory."""
_HUBS = 8
"""Fewer rows than these join their many neighbours' bits row by row."""
_LONG = 1000
"""Steps after which scipy, where it is installed, is quicker from the start than the rest of the search: measured."""
_PAIRS = 2**19
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
    patience = _LONG if out.device.type == "cpu" and importlib.util.find_spec("scipy") else sys.maxsize
    order = sizes.argsort(descending=True, stable=True)
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    begin = 0
    for members in order.split(_groups(sizes[order].tolist())):
        group = edges[:, (place[edges[0]] >= begin) & (place[edges[0]] < begin + len(members))]
        group[0] = place[group[0]] - begin
        if not _search(out, graphs[members], sizes[members], group, max_distance, patience):
            dijkstra(out, graphs[members], sizes[members], group, None, max_distance)
        begin += len(members)


def _groups(sizes: list[int]) -> list[int]:
    """How many graphs to search together, the largest first: no graph at less than half the size of the largest."""
    counts: list[int] = []
    largest = words = 0
    for size in sizes:
        words += size * -(-largest // 64)
        if not counts or 2 * size < largest or words > _GROUP:
            counts.append(0)
            largest, words = size, size * -(-size // 64)
        counts[-1] += 1
    return counts


def _search(out: Tensor, graphs: Tensor, sizes: Tensor, edges: Tensor, max_distance: int | None, patience: int) -> bool:
    """Whether it was done before so many steps."""
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
    components = None if max_distance is None else _components(row[sources], row[targets], len(graph))
    lines = graphs[graph[order]] * out.shape[1] + place
    width = max(1, _WORDS // len(graph)) * 64
    for first in range(0, n, width):
        end = min(n, first + width)
        itself = _bits(place - first, end - first)
        found = _hops(itself, neighbours, max_distance, patience)
        if found is None:
            return False
        digits, steps, reached = found
        if steps == max_distance:
            reached = _reachable(itself, reached, neighbours, components, patience)
            if reached is None:
                return False
        _read_off(out.view(-1, out.shape[2])[:, first:end], lines, digits, steps + 1, reached)
    return True


def _once(sources: Tensor, targets: Tensor, num_nodes: int) -> Tensor:
    """Each edge once, ordered by its first node, and none from a node to itself."""
    keys = torch.unique(sources * num_nodes + targets)
    edges = torch.stack((keys.div(num_nodes, rounding_mode="floor"), keys % num_nodes))
    return edges[:, edges[0] != edges[1]]


class _Neighbours(NamedTuple):
    """The rows of the neighbours of each row; rows with more neighbours come first."""

    kth: list[Tensor]
    """For k = 0, 1, ... the k-th neighbour of each row that has so many, while there are several such rows."""
    others: list[Tensor]
    """The other neighbours of the first rows, of each all together."""


def _neighbours(sources: Tensor, targets: Tensor, degrees: Tensor) -> _Neighbours:
    by_row = sources.argsort(stable=True)
    starts = degrees.cumsum(0) - degrees
    k = torch.arange(len(by_row), device=degrees.device) - starts[sources[by_row]]
    targets = targets[by_row]
    counts = k.bincount().tolist()
    several = [count for count in counts if count >= _HUBS]
    kth = targets[k.argsort(stable=True)].split(counts)[: len(several)]
    hubs = counts[len(several)] if len(several) < len(counts) else 0
    ranges = torch.stack((starts + len(several), starts + degrees))[:, :hubs].T.tolist()
    return _Neighbours(list(kth), [targets[begin:end] for begin, end in ranges])


def _join(reached: Tensor, before: Tensor, neighbours: _Neighbours) -> None:
    """Add to what each row reaches what its neighbours reached before."""
    if reached.shape[1] == 1:  # choosing numbers is quicker than choosing rows of one number
        reached, before = reached[:, 0], before[:, 0]
    taken = torch.empty_like(reached)
    for rows in neighbours.kth:
        reached[: len(rows)] |= torch.index_select(before, 0, rows, out=taken[: len(rows)])
    for row, rows in enumerate(neighbours.others):
        sets = before.index_select(0, rows)
        while len(sets) > 1:
            half = len(sets) // 2
            sets[:half] |= sets[-half:]
            sets = sets[: len(sets) - half]
        reached[row] |= sets[0]


def _bits(places: Tensor, n: int) -> Tensor:
    """(V, W) int64, one bit of each row, at its place if that is from 0 to n - 1, else none."""
    rows = ((places >= 0) & (places < n)).nonzero()[:, 0]
    bits = torch.zeros(len(places), -(-n // 64) * 8, dtype=torch.uint8, device=places.device)
    bits[rows, places[rows] >> 3] = (1 << (places[rows] & 7)).to(torch.uint8)
    return bits.view(torch.int64)


def _hops(
    itself: Tensor, neighbours: _Neighbours, max_distance: int | None, patience: int
) -> tuple[list[Tensor], int, Tensor] | None:
    """The digits of `_flip`, the number of steps until nothing more is reached, or the limit, and what is reached.

    None if that takes so many steps as there is patience for.
    """
    reached, before = itself.clone(), itself.clone()
    digits: list[Tensor] = []
    for steps in range(patience):
        _flip(digits, reached, steps)
        if steps != max_distance:
            _join(reached, before, neighbours)
        if torch.equal(reached, before):
            return digits, steps, reached
        before.copy_(reached)
    return None


def _flip(digits: list[Tensor], reached: Tensor, steps: int) -> None:
    """In the Gray code of a number, of which one digit changes from a number to the next, flip the digit that changes.

    Flipped where a pair is reached in each step from its distance d on, before step L, the digits are those in which
    the codes of d and L differ; all are 0 where it was never reached.
    """
    digit = ((steps + 1) & -(steps + 1)).bit_length() - 1
    if digit == len(digits):
        digits.append(torch.zeros_like(reached))
    digits[digit] ^= reached


def _reachable(
    itself: Tensor, reached: Tensor, neighbours: _Neighbours, components: Tensor | None, patience: int
) -> Tensor | None:
    """What each row reaches in any number of steps, as bits, if `reached` in some; None beyond patience."""
    if components is not None:
        return torch.zeros_like(itself).index_add_(0, components, itself)[components]  # no bit is there twice
    for _ in range(patience):
        before = reached.clone()
        _join(reached, reached, neighbours)
        if torch.equal(reached, before):
            return reached
    return None


def _components(sources: Tensor, targets: Tensor, num_rows: int) -> Tensor | None:
    """(num_rows,) int64, the same number for two rows of one component; None unless all edges go both ways."""
    if not torch.equal((sources * num_rows + targets).sort().values, (targets * num_rows + sources).sort().values):
        return None
    components = torch.arange(num_rows, device=sources.device)
    while True:
        one, other = components[sources], components[targets]
        if torch.equal(one, other):
            return components
        # The root of a component goes under the lowest root beside it, then every row to its root.
        components.scatter_reduce_(0, torch.maximum(one, other), torch.minimum(one, other), "amin")
        while not torch.equal(components, above := components[components]):
            components = above


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
    most = max(1, _PAIRS // n)
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
