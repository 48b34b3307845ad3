"""Features of graphs against other libraries and loops."""

from __future__ import annotations

import math

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddRandomWalkPE

from relbias.relations import Features, pairwise_distances, random_walks, resistance_distances

GRAPHS = {
    "path": nx.path_graph(5),
    "cycle and a path": nx.disjoint_union(nx.cycle_graph(4), nx.path_graph(3)),
    "nodes without edges": nx.empty_graph(3),
    "one node": nx.empty_graph(1),
    "no node": nx.empty_graph(0),
    "random": nx.gnp_random_graph(12, 0.2, seed=1),
    "long path": nx.path_graph(18),
    "self loops": nx.Graph([(0, 0), (0, 1), (1, 2), (2, 2)]),
}


def adjacency(graph: nx.Graph, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    matrix = torch.zeros(len(graph), len(graph), dtype=dtype)
    for i, j in graph.edges:
        matrix[i, j] = matrix[j, i] = 1
    return matrix


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_random_walks_equal_a_loop(graph):
    n, steps = len(graph), 6
    walks = random_walks(adjacency(graph), steps)
    assert walks.shape == (n, n, steps)
    for start in range(n):
        probabilities = [float(i == start) for i in range(n)]
        for step in range(steps):
            torch.testing.assert_close(walks[start, :, step], torch.tensor(probabilities, dtype=torch.float64))
            arrived = [0.0] * n
            for i in range(n):
                neighbours = list(graph.neighbors(i))
                for j in neighbours:
                    arrived[j] += probabilities[i] / len(neighbours)
            probabilities = arrived


@pytest.mark.parametrize("name", ["path", "cycle and a path", "random"])
def test_returns_equal_those_of_pyg(name):
    matrix = adjacency(GRAPHS[name], torch.float32)
    data = Data(edge_index=matrix.nonzero().T, num_nodes=len(matrix))
    theirs = AddRandomWalkPE(walk_length=7, attr_name="pe")(data).pe
    returns = random_walks(matrix, 8).diagonal().T[:, 1:]
    torch.testing.assert_close(returns, theirs)


def test_a_directed_weighted_walk():
    matrix = torch.tensor([[0.0, 3.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    walks = random_walks(matrix, 3)
    assert walks[0, :, 1].tolist() == [0.0, 0.75, 0.25]
    assert walks[0, :, 2].tolist() == [0.0, 0.0, 0.75]
    assert not walks[2, :, 1:].any()


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_resistances_equal_those_of_networkx(graph):
    got = resistance_distances(adjacency(graph))
    assert got.shape == (len(graph), len(graph), 2)
    plain = nx.Graph(graph)
    plain.remove_edges_from(nx.selfloop_edges(graph))
    for i in graph:
        for j in graph:
            reached = nx.has_path(graph, i, j)
            part = plain.subgraph(nx.node_connected_component(plain, i))
            expected = nx.resistance_distance(part, i, j) if reached and i != j else 0.0
            assert math.isclose(float(got[i, j, 0]), expected, abs_tol=1e-9)
            assert float(got[i, j, 1]) == float(not reached)


def test_conductances():
    matrix = torch.tensor([[0.0, 4.0, 0.0], [4.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
    resistances = resistance_distances(matrix)[..., 0]
    torch.testing.assert_close(resistances, torch.tensor([[0.0, 0.25, 2.25], [0.25, 0.0, 2.0], [2.25, 2.0, 0.0]]))


@pytest.mark.parametrize("function", [lambda a: random_walks(a, 5), resistance_distances])
def test_a_permutation_of_the_nodes_permutes_the_features(function):
    matrix = adjacency(GRAPHS["cycle and a path"])
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    expected = function(matrix)[order][:, order]
    torch.testing.assert_close(function(matrix[order][:, order]), expected)


@pytest.mark.parametrize("function", [lambda a: random_walks(a, 5), resistance_distances])
def test_batched_and_padded_equals_alone(function):
    small, large = adjacency(GRAPHS["path"]), adjacency(GRAPHS["cycle and a path"])
    batch = torch.stack((torch.nn.functional.pad(small, (0, 2, 0, 2)), large))
    together = function(batch)
    torch.testing.assert_close(together[0, :5, :5], function(small))
    torch.testing.assert_close(together[1], function(large))
    assert Features(together.shape[-1])(together).shape == (7, 7)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float32])
@pytest.mark.parametrize("function", [lambda a: random_walks(a, 5), resistance_distances])
def test_dtypes_and_layouts(function, dtype):
    matrix = adjacency(GRAPHS["random"])
    layout = torch.zeros(24, 12, dtype=dtype)
    layout[::2] = matrix.to(dtype)
    got = function(layout[::2].T)  # symmetric, non-contiguous
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, function(matrix).float())


def test_distances_in_space():
    places = torch.randn(2, 40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    distances = pairwise_distances(places)
    for b, i, j in ((0, 3, 9), (1, 39, 0), (0, 5, 5)):
        assert math.isclose(float(distances[b, i, j]), math.dist(places[b, i].tolist(), places[b, j].tolist()))
    assert not pairwise_distances(1000.0 + torch.rand(40, 3)).diagonal().any()
    assert pairwise_distances(torch.zeros(0, 3)).shape == (0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_walks(torch.zeros(2, 3), 4), r"\(N, N\) or \(B, N, N\), got \(2, 3\)"),
        (lambda: random_walks(torch.zeros(2, 2), 0), "num_steps must be an integer of at least 1, got 0"),
        (lambda: random_walks(-torch.ones(2, 2), 2), "at least 0 and finite"),
        (lambda: resistance_distances(torch.full((2, 2), torch.nan)), "at least 0 and finite"),
        (lambda: resistance_distances(torch.tensor([[0, 1], [0, 0]])), "not symmetric"),
        (lambda: pairwise_distances(torch.zeros(3)), r"coordinates have shape.*got \(3,\)"),
        (lambda: pairwise_distances(torch.zeros(3, 3, dtype=torch.long)), "floating"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distances_of_half_precision_are_rounded_once(dtype):
    places = torch.randn(5, 3).to(dtype)
    assert torch.equal(pairwise_distances(places), pairwise_distances(places.double()).to(dtype))


def test_resistances_in_float32_are_rounded_once():
    torch.manual_seed(0)
    weights = torch.rand(30, 30).triu(1) ** 8 + 1e-6  # conductances of many magnitudes
    adjacency = weights.triu(1) + weights.triu(1).T
    assert torch.equal(resistance_distances(adjacency), resistance_distances(adjacency.double()).float())
