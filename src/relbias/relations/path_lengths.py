"""Distances between the nodes of graphs."""

from __future__ import annotations

import os
import sys

import torch
from torch import Tensor

from relbias.relations.base import can_check_values, check_size
from relbias.relations.breadth_first import breadth_first
from relbias.relations.dijkstra import dijkstra
from relbias.relations.floyd_warshall import floyd_warshall, floyd_warshall_of_one

_SMALL = 96
"""Up to so many nodes the steps over all pairs of a graph cost less than a search on bits: measured."""
_SMALL_WEIGHTED = 512
"""Likewise less than Dijkstra's algorithm, on the CPU: measured."""
_FARTHEST = torch.iinfo(torch.int16).max
"""As many nodes as a graph may have, and one more than the edges of its longest path."""


def shortest_paths(
    edge_index: Tensor,
    num_nodes: int,
    batch: Tensor | None = None,
    *,
    max_distance: int | None = None,
    directed: bool = True,
    weights: Tensor | None = None,
) -> Tensor:
    """The number of edges on a shortest path between all nodes, for `Hops`, or the length of the path.

    Graphs of few nodes are computed together by the algorithm of Floyd and Warshall, those of about one size in one
    group, so that small ones are not padded to the largest; larger ones by a breadth-first search on bits, or with
    weights by scipy's Dijkstra (the extra "graph"; on a GPU Floyd and Warshall again), which also takes over on the CPU
    where a search has made a thousand steps, if scipy is installed.

    Args:
        edge_index: (2, E) int64, the nodes i and j of each edge, from 0 to num_nodes - 1. An undirected edge is
            given in both directions. Edges from a node to itself, and edges given twice, change nothing.
        num_nodes: of all graphs together.
        batch: (num_nodes,) int64, the graph of each node, not descending; None for one graph.
        max_distance: what is farther has the distance max_distance + 1; None for no limit.
        directed: whether a path follows each edge from i to j only; otherwise both ways.
        weights: (E,) floating, how long each edge is, at least 0; of an edge given twice the shortest counts. None
            where each counts 1.

    Returns:
        (N, N), or with a batch (B, N, N) where N is the size of the largest graph: at (i, j) the distance from i to j,
        -1 where there is no path or no node. int8 for a max_distance of at most 126, else int16; with weights in their
        dtype, and without gradients.

    Raises:
        ValueError: another shape or dtype, an edge between two graphs, or (on CPU, outside compile and export) a node
            out of range or a weight that is negative or not finite; a graph of more than 32,767 nodes, or distances
            that do not fit the memory.
        MissingExtraError: weights, a graph of more than 512 nodes on the CPU, and scipy is not installed.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 2]])
        >>> shortest_paths(edges, num_nodes=3)
        tensor([[ 0,  1,  2],
                [-1,  0,  1],
                [-1, -1,  0]], dtype=torch.int16)
        >>> shortest_paths(edges, num_nodes=3, directed=False, weights=torch.tensor([0.5, 2.0]))
        tensor([[0.0000, 0.5000, 2.5000],
                [0.5000, 0.0000, 2.0000],
                [2.5000, 2.0000, 0.0000]])
    """
    check_graphs(edge_index, num_nodes, batch)
    if max_distance is not None:
        check_size("shortest_paths' max_distance", max_distance, 0)
        if weights is None and max_distance >= _FARTHEST:
            max_distance = None  # no graph has longer paths, and the code of far ones would not fit
    if weights is not None:
        _check_weights(weights, edge_index)
        weights = weights.detach()
    dtype = torch.int8 if max_distance is not None and max_distance <= 126 else torch.int16
    if weights is not None:
        dtype = weights.dtype
    if not directed:
        edge_index = torch.cat((edge_index, edge_index.flip(0)), 1)
        weights = None if weights is None else weights.repeat(2)
    most = _SMALL
    if weights is not None:
        most = _SMALL_WEIGHTED if weights.device.type == "cpu" else sys.maxsize
    if batch is None and 0 < num_nodes <= most:  # one by one, the work around the steps would cost more than they do
        _check_memory(1, num_nodes, dtype, edge_index.device)
        out = floyd_warshall_of_one(edge_index, num_nodes, weights).to(dtype)
    else:
        out = _of_batch(edge_index, num_nodes, batch, weights, max_distance, most, dtype)
    if max_distance is not None:
        out.clamp_(max=max_distance + 1)
    return out


def _of_batch(
    edge_index: Tensor,
    num_nodes: int,
    batch: Tensor | None,
    weights: Tensor | None,
    max_distance: int | None,
    most: int,
    dtype: torch.dtype,
) -> Tensor:
    device = edge_index.device
    graph = torch.zeros(num_nodes, dtype=torch.int64, device=device) if batch is None else batch
    sizes = torch.bincount(graph, minlength=1 if batch is None else 0)
    longest = int(sizes.max()) if len(sizes) else 0
    _check_memory(len(sizes), longest, dtype, device)
    of_edges = graph.index_select(0, edge_index[0])
    starts = (sizes.cumsum(0) - sizes).index_select(0, of_edges)
    edges = torch.stack((of_edges, edge_index[0] - starts, edge_index[1] - starts))
    out = torch.full((len(sizes), longest, longest), -1, dtype=dtype, device=device)
    for there in ((sizes > 0) & (sizes <= most), sizes > most):
        graphs = there.nonzero()[:, 0]
        if not len(graphs):
            continue
        inner, lengths = edges, weights
        if len(graphs) < len(sizes):
            chosen = there[edges[0]]
            inner = edges[:, chosen]
            inner[0] = (there.cumsum(0) - 1)[inner[0]]
            lengths = None if weights is None else weights[chosen]
        if int(sizes[graphs[0]]) <= most:
            floyd_warshall(out, graphs, sizes[graphs], inner, lengths)
        elif lengths is None:
            breadth_first(out, graphs, sizes[graphs], inner, max_distance)
        else:
            dijkstra(out, graphs, sizes[graphs], inner, lengths, max_distance)
    return out if batch is not None else out[0]


def _check_weights(weights: Tensor, edge_index: Tensor) -> None:
    if weights.shape != edge_index.shape[1:] or not weights.is_floating_point():
        raise ValueError(
            f"weights has shape ({edge_index.shape[1]},), one of each edge, and is floating, got "
            f"{tuple(weights.shape)} {weights.dtype}"
        )
    if can_check_values(weights) and not bool(((weights >= 0) & (weights < torch.inf)).all()):
        wrong = weights[~((weights >= 0) & (weights < torch.inf))][0]
        raise ValueError(f"weights has {float(wrong)}; the length of an edge is finite and at least 0")


def _check_memory(count: int, n: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raise ValueError where distances do not fit int16, or all together not the memory of the device."""
    gib = (count * dtype.itemsize + 1.5) * n * n / 2**30  # with the bits of the search
    if n > _FARTHEST:
        raise ValueError(
            f"a graph of {n} nodes has too many for the distances between all, which would take {gib:.1f} GiB; take "
            f"subgraphs of at most {_FARTHEST} nodes, such as PyG's NeighborLoader or ClusterLoader"
        )
    if gib > (there := _memory(device) / 2**30):
        raise ValueError(
            f"{count} graphs, the largest of {n} nodes, take {gib:.1f} GiB for the distances between all nodes, and "
            f"{device} has {there:.1f} GiB; batch fewer graphs, or graphs of about one size, or take subgraphs"
        )


def _memory(device: torch.device) -> float:
    """The bytes of a device, inf where that is not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float("inf")


def check_graphs(edge_index: Tensor, num_nodes: int, batch: Tensor | None) -> None:
    """Raise ValueError unless there are graphs: edges between nodes that exist, and a batch that does not descend."""
    check_size("num_nodes", num_nodes, 0)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        raise ValueError(f"edge_index has shape (2, E) and is int64, got {tuple(edge_index.shape)} {edge_index.dtype}")
    if batch is not None and (batch.shape != (num_nodes,) or batch.dtype != torch.int64):
        raise ValueError(f"batch has shape ({num_nodes},) and is int64, got {tuple(batch.shape)} {batch.dtype}")
    if not can_check_values(edge_index):
        return
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= num_nodes:
            raise ValueError(f"the edges have nodes from {low} to {high}, expected 0 to {num_nodes - 1}")
    if batch is not None and num_nodes:
        if int(batch[0]) < 0:
            raise ValueError(f"batch begins with {int(batch[0])}; graphs are counted from 0")
        if bool((batch[1:] < batch[:-1]).any()):
            raise ValueError("batch descends; the nodes of a graph stand together, those of the first graph first")
        if bool((batch[edge_index[0]] != batch[edge_index[1]]).any()):
            raise ValueError("an edge joins nodes of two graphs of the batch; correct edge_index or batch")
