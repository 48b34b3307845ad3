"""Lengths of shortest paths in large graphs whose edges have lengths, or whose paths are long, by scipy's Dijkstra."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias._extras import extra

_PAIRS = 2**20
"""Pairs of nodes whose distances scipy holds at a time, in float64."""


def dijkstra(
    out: Tensor, graphs: Tensor, sizes: Tensor, edges: Tensor, weights: Tensor | None, max_distance: int | None
) -> None:
    """Write the distances within graphs into the matrices of their batch, one graph after the other.

    Args:
        out: (B, N, N) on the CPU with -1 everywhere: where there is no path and no node it stays.
        graphs: (b,) int64, the matrices to write.
        sizes: (b,) int64, their numbers of nodes, at least 1.
        edges: (3, E) int64, for each edge the graph, from 0 to b - 1, and the places of its nodes i and j there.
        weights: (E,) floating, how long the edges are; None to count hops.
        max_distance: what is farther has the distance max_distance + 1; None for no limit.

    Raises:
        MissingExtraError: scipy is not installed.
    """
    with extra("graph"):
        from scipy import sparse
    order = edges[0].argsort()
    counts = edges[0].bincount(minlength=len(sizes)).tolist()
    for graph, n, members in zip(graphs.tolist(), sizes.tolist(), order.split(counts), strict=True):
        keys, edge = torch.unique(edges[1, members] * n + edges[2, members], return_inverse=True)
        # Of edges given twice the shortest: scipy would add them up.
        lengths = torch.full(keys.shape, torch.inf, dtype=torch.float64)
        if weights is None:
            lengths.fill_(1)
        else:
            lengths.scatter_reduce_(0, edge, weights[members].double(), "amin")
        places = (keys.div(n, rounding_mode="floor").numpy(), (keys % n).numpy())
        matrix = sparse.csr_matrix((lengths.numpy(), places), shape=(n, n))
        most = max(1, _PAIRS // n)
        for begin in range(0, n, most):
            end = min(n, begin + most)
            found = torch.from_numpy(sparse.csgraph.dijkstra(matrix, indices=range(begin, end)))
            nowhere = found == torch.inf
            if max_distance is not None:
                found.clamp_(max=max_distance + 1)
            out[graph, begin:end, :n] = found.masked_fill_(nowhere, -1).to(out.dtype)
