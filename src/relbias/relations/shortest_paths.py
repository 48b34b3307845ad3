"""Distances between the nodes of graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import can_check_values, check_size


def shortest_paths(
    edge_index: Tensor,
    num_nodes: int,
    batch: Tensor | None = None,
    *,
    max_distance: int | None = None,
    directed: bool = True,
) -> Tensor:
    """The number of edges on a shortest path between all nodes, for `Hops`.

    Args:
        edge_index: (2, E) int64, the nodes i and j of each edge, from 0 to num_nodes - 1. An undirected edge is
            given in both directions. Edges from a node to itself, and edges given twice, change nothing.
        num_nodes: of all graphs together.
        batch: (num_nodes,) int64, the graph of each node, not descending; None for one graph.
        max_distance: what is farther has the distance max_distance + 1; None for no limit.
        directed: whether a path follows each edge from i to j only; otherwise both ways.

    Returns:
        (N, N), or with a batch (B, N, N) where N is the size of the largest graph: at (i, j) the distance from i to j,
        -1 where there is no path or no node. int8 for a max_distance of at most 126, else int16.

    Raises:
        ValueError: another shape or dtype, an edge between two graphs, or (on CPU, outside compile and export) a node
            out of range.

    Example:
        >>> shortest_paths(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        tensor([[ 0,  1,  2],
                [-1,  0,  1],
                [-1, -1,  0]], dtype=torch.int16)
    """
    check_graphs(edge_index, num_nodes, batch)
    if max_distance is not None:
        check_size("shortest_paths' max_distance", max_distance, 0)
    graph = torch.zeros(num_nodes, dtype=torch.int64, device=edge_index.device) if batch is None else batch
    sizes = torch.bincount(graph, minlength=1 if batch is None else 0)
    places = torch.arange(num_nodes, device=edge_index.device) - (sizes.cumsum(0) - sizes)[graph]
    n = int(sizes.max()) if len(sizes) else 0
    far = n + 1
    distances = torch.full((len(sizes), n, n), far, dtype=torch.int16, device=edge_index.device)
    sources, targets = edge_index
    if not directed:
        sources, targets = torch.cat((sources, targets)), torch.cat((targets, sources))
    distances[graph[sources], places[sources], places[targets]] = 1
    distances[graph, places, places] = 0
    for k in range(n):
        distances = torch.minimum(distances, distances[:, :, k, None] + distances[:, None, k])
    distances = distances.masked_fill(distances >= far, -1)
    if max_distance is not None:
        distances = distances.clamp(max=max_distance + 1)
        if max_distance <= 126:
            distances = distances.to(torch.int8)
    return distances if batch is not None else distances[0]


def check_graphs(edge_index: Tensor, num_nodes: int, batch: Tensor | None) -> None:
    """Raise ValueError unless there are graphs: edges between nodes that exist, and a batch that does not descend."""
    check_size("num_nodes", num_nodes, 0)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        raise ValueError(f"edge_index has shape (2, E) and is int64, got {tuple(edge_index.shape)} {edge_index.dtype}")
    if batch is not None and (batch.shape != (num_nodes,) or batch.dtype != torch.int64):
        raise ValueError(f"batch has shape ({num_nodes},) and is int64, got {tuple(batch.shape)} {batch.dtype}")
    if not can_check_values(edge_index) or not edge_index.numel():
        return
    low, high = int(edge_index.min()), int(edge_index.max())
    if low < 0 or high >= num_nodes:
        raise ValueError(f"the edges have nodes from {low} to {high}, expected 0 to {num_nodes - 1}")
    if batch is not None:
        if bool((batch[1:] < batch[:-1]).any()):
            raise ValueError("batch descends; the nodes of a graph stand together, those of the first graph first")
        if bool((batch[edge_index[0]] != batch[edge_index[1]]).any()):
            raise ValueError("an edge joins nodes of two graphs of the batch; correct edge_index or batch")
