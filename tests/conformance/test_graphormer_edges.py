"""Graphormer's biases of distances and edges against its formulas on shifted indices, with a virtual node."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import torch
from torch import nn

import relbias as rb

HEADS, SIZE, TYPES, LIMIT, FARTHEST = 3, 4, 5, 2, 20


def test_distances_and_edges(dtype, implementation, assert_same):
    torch.manual_seed(0)
    graph = nx.disjoint_union(nx.path_graph(5), nx.star_graph(2))  # trees: every path is the only one
    n = len(graph)
    kinds = {frozenset(edge): number % TYPES for number, edge in enumerate(graph.edges)}
    # One shift for padding, as in the authors' batches: 0 = none, distance + 1, type + 1.
    shifted_distances = torch.zeros(1, n, n, dtype=torch.long)
    shifted_paths = torch.zeros(1, n, n, FARTHEST, dtype=torch.long)
    for i in graph:
        for j, path in nx.single_source_shortest_path(graph, i).items():
            shifted_distances[0, i, j] = len(path)
            for place, edge in enumerate(pairwise(path)):
                shifted_paths[0, i, j, place] = kinds[frozenset(edge)] + 1

    q, k, v = (torch.randn(1, HEADS, n + 1, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    # Distances 0 ... 20, far (which does not occur), unreachable, then the virtual node's.
    rows = torch.randn(FARTHEST + 6, HEADS, dtype=dtype, requires_grad=True)
    spatial, virtual = torch.cat((rows[FARTHEST + 2, None], rows[: FARTHEST + 1])), rows[-3:]
    edge_encoder = nn.Embedding(TYPES + 1, HEADS, padding_idx=0, dtype=dtype)
    place_encoder = torch.randn(LIMIT, HEADS, HEADS, dtype=dtype, requires_grad=True)
    divisor = (shifted_distances - 1).clamp(1, LIMIT)
    by_place = edge_encoder(shifted_paths[..., :LIMIT]).movedim(3, 0).flatten(1, 3)
    edge_bias = torch.bmm(by_place, place_encoder).view(LIMIT, 1, n, n, HEADS).sum(dim=0) / divisor[..., None]
    inner = spatial[shifted_distances] + edge_bias
    top = torch.cat((virtual[2].expand(1, 1, 1, HEADS), virtual[0].expand(1, 1, n, HEADS)), dim=2)
    below = torch.cat((virtual[1].expand(1, n, 1, HEADS), inner), dim=2)
    bias = torch.cat((top, below), dim=1).movedim(-1, 1)
    theirs = (q @ k.mT / SIZE**0.5 + bias).softmax(dim=-1) @ v

    relations = {
        "hops": rb.relations.Hops(FARTHEST, prefix_tokens=1),
        "edges": rb.relations.EdgePaths(TYPES, LIMIT, prefix_tokens=1),
    }
    encoding = rb.create_encoding({"hops": "table", "edges": "graphormer_edges"}, HEADS, SIZE, relations).to(dtype)
    table, edges = encoding.encodings["hops"].table, encoding.encodings["edges"]
    with torch.no_grad():
        table.copy_(rows.T)
        edges.embeddings.copy_(edge_encoder.weight[1:])
        edges.weights.copy_(place_encoder)
    directed = nx.DiGraph(graph)
    types = torch.tensor([kinds[frozenset(edge)] for edge in directed.edges])
    graphs = rb.relations.GraphBatch(torch.tensor(list(directed.edges)).T, n, edge_attr=types)
    index = {name: relation.of_graphs(graphs) for name, relation in relations.items()}
    ours = rb.relative_attention(q, k, v, encoding(index), implementation=implementation)
    assert_same(
        (ours, [q, k, v, table, edges.embeddings, edges.weights]),
        (theirs, [q, k, v, rows, edge_encoder.weight, place_encoder]),
        [lambda g: g] * 3 + [lambda g: g.T, lambda g: g[1:], lambda g: g],
    )
