"""Shortest paths against networkx, and their index."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import EdgePaths, Hops, typed_paths


def edges_of(graph):
    """edge_index and a type for each edge that tells it from all others."""
    pairs = list(graph.edges)
    return torch.tensor(pairs, dtype=torch.long).view(-1, 2).T, torch.arange(len(pairs))


@given(n=st.integers(0, 9), probability=st.floats(0, 0.6), seed=st.integers(0, 99), limit=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_paths_are_shortest_and_lead_from_i_to_j(n, probability, seed, limit):
    graph = nx.gnp_random_graph(n, probability, seed=seed, directed=True)
    edge_index, types = edges_of(graph)
    distances, paths = typed_paths(edge_index, types, n, limit)
    assert distances.shape == (n, n)
    assert paths.shape == (n, n, limit)
    expected = dict(nx.all_pairs_shortest_path_length(graph))
    for i in range(n):
        for j in range(n):
            distance = expected[i].get(j, -1)
            assert int(distances[i, j]) == distance
            path = [int(t) for t in paths[i, j]]
            length = min(max(distance, 0), limit)
            assert path[length:] == [-1] * (limit - length)
            node = i
            for edge in path[:length]:
                start, node = edge_index[:, edge].tolist()
                assert start == path_node(edge_index, path, i, edge)
            if 0 <= distance <= limit:
                assert node == j
            elif distance > limit:  # cut off on the way
                assert expected[node][j] == distance - limit
    assert Hops(3)(distances).shape == EdgePaths(max(len(types), 1), limit)(paths).shape == (n, n)


def path_node(edge_index, path, first, edge):
    """Where a path stands before an edge."""
    place = path.index(edge)
    return first if place == 0 else int(edge_index[1, path[place - 1]])


def test_of_several_edges_the_first_counts_and_loops_do_not():
    edges, types = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 2]], dtype=torch.int16), torch.tensor([9, 3, 4, 5])
    distances, paths = typed_paths(edges, types.to(torch.int8), num_nodes=3, max_edges=2)
    assert distances[0].tolist() == [0, 1, 2]
    assert paths[0].tolist() == [[-1, -1], [3, -1], [3, 5]]


def test_nodes_without_edges():
    distances, paths = typed_paths(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long), 2, 3)
    assert distances.tolist() == [[0, -1], [-1, 0]]
    assert (paths == -1).all()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64])
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (0, 0), (4, 0, 3)])
@pytest.mark.parametrize("prefix", [0, 2])
def test_the_index_gives_the_paths_it_was_given(shape, dtype, prefix):
    paths = torch.randint(0, 6, (*shape, 8)).to(dtype)[..., ::2]  # non-contiguous
    paths[..., 2:] = -1
    index = EdgePaths(6, 4, prefix)(paths)
    n, m = shape[-2] + prefix, shape[-1] + prefix
    assert (index.shape, index.num_codes) == ((n, m), None)
    got, expected = index.paths(), paths.long() if len(shape) == 3 else paths.long()[None]
    assert got.shape == (expected.shape[0], n, m, 4)
    assert torch.equal(got[:, prefix:, prefix:], expected)
    assert (got[:, :prefix] == -1).all()
    assert (got[:, :, :prefix] == -1).all()
    assert torch.equal(index.paths(slice(1, 2)), got[:, 1:2])


def test_transposed():
    paths = torch.randint(0, 6, (2, 3, 3, 4))
    assert torch.equal(EdgePaths(6, 4)(paths).T.paths(), paths.transpose(1, 2))
    with pytest.raises(ValueError, match="only a square index"):
        _ = EdgePaths(6, 4)(paths[:, :2]).T


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EdgePaths(0, 2), "num_types must be an integer of at least 1, got 0"),
        (lambda: EdgePaths(2, 0), "max_edges must be an integer of at least 1, got 0"),
        (lambda: EdgePaths(2, 2, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: EdgePaths(2, 1)(torch.tensor([[[2]]])), "from 0 to 1, and -1 after their end, got 2 to 2"),
        (lambda: EdgePaths(2, 1)(torch.tensor([[[-2]]])), "got -2 to -2"),
        (lambda: EdgePaths(2, 2)(torch.tensor([[[-1, 1]]])), "an edge after its end"),
        (lambda: EdgePaths(2, 2)(torch.tensor([[[-1, 0]]])), "an edge after its end"),
        (lambda: EdgePaths(2, 2)(torch.zeros(1, 1, 3, dtype=torch.long)), r"\(N, M, 2\).*got \(1, 1, 3\)"),
        (lambda: EdgePaths(2, 2)(torch.zeros(1, 1, 2)), "signed integers, got torch.float32"),
        (lambda: EdgePaths(2, 2)(torch.zeros(1, 1, 2, dtype=torch.uint8)), "signed integers, got torch.uint8"),
        (lambda: EdgePaths(2, 2)(torch.zeros(1, 1, 2, dtype=torch.uint16)), "signed integers, got torch.uint16"),
        (lambda: EdgePaths(2, 1)(torch.tensor([[[1]]])).codes(), "no codes"),
        (lambda: typed_paths(torch.tensor([[0], [3]]), torch.tensor([0]), 3, 2), "nodes from 0 to 3"),
        (lambda: typed_paths(torch.tensor([[0], [1]]), torch.tensor([-1]), 3, 2), "types from -1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
