"""The last edges of shortest paths and the paths made of them, against networkx."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import EdgePaths, GraphBatch
from relbias.relations import last_edges as module


def graph_of(graph, attr=None, **pairs):
    edges = torch.tensor(list(graph.edges), dtype=torch.long).view(-1, 2).T
    return GraphBatch(edges, len(graph), edge_attr=attr, pairs=pairs)


def edges_of_path(index, i, j):
    """The kinds of the edges of a path, first to last."""
    path, kinds = int(index.codes()[0, 0, i, j]), []
    while path:
        kinds.insert(0, int(index.forest.kinds[path]))
        path = int(index.forest.parents[path])
    return kinds


@given(
    n=st.integers(0, 9), probability=st.floats(0, 0.6), seed=st.integers(0, 99), block=st.sampled_from([1, 30, 10**6])
)
@settings(max_examples=60, deadline=None)
def test_the_last_edge_is_the_first_in_the_list_that_ends_a_shortest_path(n, probability, seed, block):
    graph = nx.gnp_random_graph(n, probability, seed=seed, directed=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NUMBERS_PER_BLOCK", block)
        got = graph_of(graph).last_edges
    assert got.dtype == torch.int32
    assert got.shape == (1, n, n)
    distances = dict(nx.all_pairs_shortest_path_length(graph))
    for i in range(n):
        for j in range(n):
            ends = [
                number
                for number, (source, target) in enumerate(graph.edges)
                if target == j and i != j and j in distances[i] and distances[i].get(source) == distances[i][j] - 1
            ]
            assert int(got[0, i, j]) == (ends[0] if ends else -1)


def test_of_several_edges_the_first_counts_and_loops_do_not():
    edges, types = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 2]]), torch.tensor([9, 3, 4, 5])
    graphs = GraphBatch(edges, 3, edge_attr=types)
    assert graphs.last_edges[0].tolist() == [[-1, 1, 3], [-1, -1, 3], [-1, -1, -1]]
    index = EdgePaths(10, 2).of_graphs(graphs)
    kinds = index.forest.edges[edges_of_path(index, 0, 2), 0]
    assert kinds.tolist() == [3, 5]


def two_graphs(**pairs):
    """A cycle of four nodes, whose opposite nodes have two shortest paths, and a path of three; edges mixed."""
    first = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 0), (0, 3)]
    second = [(4, 5), (5, 4), (5, 6), (6, 5)]
    order = [0, 8, 1, 9, 2, 3, 10, 11, 4, 5, 6, 7]
    edges = torch.tensor([[*first, *second][place] for place in order]).T
    return GraphBatch(edges, 7, torch.tensor([0] * 4 + [1] * 3), edge_attr=torch.arange(12), pairs=pairs)


def local(chosen):
    """Numbers of edges in each graph, flat, from those in the batch, as a data set holds them."""
    graphs = two_graphs()
    graph, _, _ = graphs.edges()
    numbers = torch.stack([graph[: e + 1].eq(graph[e]).sum() - 1 for e in range(12)])
    chosen = numbers[chosen.long().clamp(min=0)].where(chosen >= 0, -1)
    return torch.cat((chosen[0].flatten(), chosen[1, :3, :3].flatten()))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
def test_those_made_beforehand_count_the_edges_of_their_graph(dtype):
    expected = two_graphs().last_edges
    flat = local(expected)
    assert int(flat.max()) == 7
    got = two_graphs(last_edges=flat.to(dtype)).last_edges
    assert torch.equal(got, expected)
    other = expected.clone()
    other[0, 0, 2] = next(e for e in range(12) if two_graphs().edge_index[:, e].tolist() == [3, 2])
    assert not torch.equal(other, expected)  # the other way round the cycle
    assert torch.equal(two_graphs(last_edges=local(other)).last_edges, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda flat: flat.index_fill(0, torch.tensor([1]), 8), "numbers of edges that are not there"),
        (lambda flat: flat.index_fill(0, torch.tensor([1]), 1), "edges that do not lead to j"),
        (lambda flat: flat[1:], "have 25 pairs in all, got 24 values"),
        (lambda flat: flat.float(), "'last_edges' must be integers, got torch.float32"),
    ],
)
def test_those_of_other_graphs_are_refused(change, message):
    flat = local(two_graphs().last_edges)
    with pytest.raises(ValueError, match=message):
        EdgePaths(12).of_graphs(two_graphs(last_edges=change(flat)))


def test_a_path_that_never_begins_is_refused():
    # 0 to 1 by the edge from 2, and 0 to 2 by that from 1.
    edges = torch.tensor([[1, 2], [2, 1]])
    graphs = GraphBatch(edges, 3, pairs={"last_edges": torch.tensor([-1, 1, 0, -1, -1, 0, -1, 1, -1])})
    with pytest.raises(ValueError, match="a path has more than 2 edges"):
        EdgePaths(1).of_graphs(graphs)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_distances_with_a_limit_lose_no_path(limit):
    graph = nx.path_graph(9, create_using=nx.DiGraph)
    exact = graph_of(graph)
    hops = exact.distances.clamp(max=limit + 1).flatten()
    assert torch.equal(graph_of(graph, hops=hops).last_edges, exact.last_edges)


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_equal_paths_share_a_number_and_long_ones_are_cut(limit):
    graph = nx.path_graph(8, create_using=nx.DiGraph)
    index = EdgePaths(2, limit).of_graphs(graph_of(graph, torch.arange(7) % 2))
    for i in range(8):
        for j in range(8):
            assert edges_of_path(index, i, j) == [place % 2 for place in range(i, j)][:limit]
    assert index.num_codes == 1 + 2 * limit
    assert index.forest.starts == tuple(1 + 2 * depth for depth in range(limit + 1))
    assert index.forest.depths.tolist() == [0, *(depth for depth in range(1, limit + 1) for _ in range(2))]


def test_features_keep_every_path():
    graph = nx.path_graph(5, create_using=nx.DiGraph)
    index = EdgePaths(num_features=1, max_edges=2).of_graphs(graph_of(graph, torch.ones(4)))
    for i in range(5):
        for j in range(5):
            assert edges_of_path(index, i, j) == list(range(i, j))[:2]


@pytest.mark.parametrize("nodes", [0, 1, 3])
@pytest.mark.parametrize("relation", [EdgePaths(2), EdgePaths((2, 3)), EdgePaths(num_features=2)], ids=str)
def test_no_edge(relation, nodes):
    attr = torch.zeros(0, len(relation.columns) or 2)
    index = relation.of_graphs(GraphBatch(torch.zeros(2, 0, dtype=torch.long), nodes, edge_attr=attr))
    assert (index.shape, index.num_codes) == ((nodes, nodes), 1)
    assert not index.codes().any()


def test_edges_without_types_are_alike():
    graph = nx.path_graph(3, create_using=nx.DiGraph)
    assert EdgePaths(1).of_graphs(graph_of(graph)).codes()[0, 0].tolist() == [[0, 1, 2], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
@pytest.mark.parametrize("batched", [False, True])
def test_from_paths(prefix, dtype, batched):
    paths = torch.tensor([[-1, 0, 3], [1, -1, 2]], dtype=dtype)
    parents, types = torch.tensor([-1, -1, 0, 2], dtype=dtype), torch.tensor([4, 4, 1, 0], dtype=dtype)
    relation = EdgePaths(5, 3, prefix)
    if batched:
        index = relation(paths.expand(2, 2, 3), parents.expand(2, -1), torch.stack((types, types.flip(0))))
        assert index.batch_heads == (2, 1)
        assert index.codes()[1, 0, prefix, prefix + 1] != index.codes()[0, 0, prefix, prefix + 1]
    else:
        index = relation(paths, parents, types)
    assert index.shape == (2 + prefix, 3 + prefix)
    codes = index.codes()[0, 0]
    assert not codes[:prefix].any()
    assert not codes[:, :prefix].any()
    inner = codes[prefix:, prefix:]
    assert inner[0, 0] == inner[1, 1] == 0
    assert inner[0, 1] == inner[1, 0] > 0  # the same type

    def types_of(path):
        parent = int(index.forest.parents[path])
        return [*(types_of(parent) if path else []), *index.forest.edges[index.forest.kinds[path], 0][None].tolist()][
            0 if path else 1 :
        ]

    assert types_of(int(inner[0, 2])) == [4, 1, 0]
    assert types_of(int(inner[1, 2])) == [4, 1]
    assert torch.equal(index.codes(slice(1, 2)), index.codes()[:, :, 1:2])


def test_transposed_and_moved():
    index = EdgePaths(12).of_graphs(two_graphs())
    assert torch.equal(index.T.codes(), index.codes().mT)
    assert index.T.code_space == index.code_space
    moved = index.to("meta").forest
    assert all(getattr(moved, name).is_meta for name in ("parents", "kinds", "depths", "edges"))
    with pytest.raises(ValueError, match="only a square index"):
        _ = EdgePaths(1)(torch.zeros(2, 3, dtype=torch.long), torch.tensor([-1]), torch.tensor([0])).T


def test_relations():
    assert EdgePaths([2, 3]) == EdgePaths((2, 3))
    assert hash(EdgePaths([2, 3])) == hash(EdgePaths((2, 3)))
    assert EdgePaths(2).code_space != EdgePaths(3).code_space
    assert EdgePaths(2).code_space != EdgePaths(num_features=2).code_space


PATH = nx.path_graph(3, create_using=nx.DiGraph)
NUMBERS = torch.zeros(2, 2, dtype=torch.long)
ONE, TWO = torch.tensor([-1]), torch.tensor([-1, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EdgePaths(0, 2), "num_types must be an integer of at least 1, got 0"),
        (lambda: EdgePaths((2, 0), 2), "num_types must be an integer of at least 1, got 0"),
        (lambda: EdgePaths((), 2), "columns must be an integer of at least 1, got 0"),
        (lambda: EdgePaths(2, 0), "max_edges must be an integer of at least 1, got 0"),
        (lambda: EdgePaths(2, 2, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: EdgePaths(num_features=0), "num_features must be an integer of at least 1, got 0"),
        (lambda: EdgePaths(), "with num_types or with num_features, got None and None"),
        (lambda: EdgePaths(2, num_features=2), "got 2 and 2; give one of them"),
        (lambda: EdgePaths(2).of_graphs(graph_of(PATH)), "no edge_attr, expected edges of 2 types"),
        (lambda: EdgePaths(num_features=2).of_graphs(graph_of(PATH)), "no edge_attr, expected 2 features"),
        (lambda: EdgePaths(2).of_graphs(graph_of(PATH, torch.zeros(2, 2))), r"\(2, 1\) or \(2,\), got \(2, 2\)"),
        (lambda: EdgePaths((2, 3)).of_graphs(graph_of(PATH, torch.zeros(2))), r"shape \(2, 2\), got \(2,\)"),
        (
            lambda: EdgePaths((2, 3)).of_graphs(graph_of(PATH, torch.tensor([[0, 1], [1, 3]]))),
            "edge 1 has the type 3 in column 1 of edge_attr, expected 0 to 2",
        ),
        (lambda: EdgePaths(2).of_graphs(graph_of(PATH, torch.tensor([0.5, 1]))), "edge_attr holds 0.5, expected types"),
        (
            lambda: EdgePaths(num_features=2).of_graphs(graph_of(PATH, torch.zeros(2, 2, dtype=torch.long))),
            "is floating, got .* torch.int64",
        ),
        (
            lambda: EdgePaths(num_features=1).of_graphs(graph_of(PATH, torch.tensor([0.0, torch.nan]))),
            "edge_attr must be finite",
        ),
        (lambda: EdgePaths(2)(NUMBERS, ONE, torch.tensor([2])), "edge 0 has the type 2"),
        (lambda: EdgePaths(2)(NUMBERS + 1, ONE, torch.tensor([1])), "paths are from -1 to 0, got 1 to 1"),
        (lambda: EdgePaths(2)(NUMBERS, torch.tensor([1]), torch.tensor([1])), "parents are from -1 to 0, got 1 to 1"),
        (lambda: EdgePaths(2)(NUMBERS, torch.tensor([0]), torch.tensor([1])), "a path has more than 5 edges"),
        (lambda: EdgePaths(2, 1)(NUMBERS, TWO, TWO + 1), "a path has more than 1 edges"),
        (lambda: EdgePaths(2)(NUMBERS[0], ONE, ONE), r"paths must have shape .*got \(2,\)"),
        (lambda: EdgePaths(2)(NUMBERS, ONE.expand(2, 1), ONE), r"parents must have shape \(R,\) or \(1, R\)"),
        (lambda: EdgePaths(2)(NUMBERS, TWO, ONE), r"the shape of parents, \(2,\), first, got \(1,\)"),
        (lambda: EdgePaths(2)(NUMBERS.float(), ONE, ONE), "paths must be integers"),
        (lambda: EdgePaths(2)(NUMBERS, ONE.float(), ONE), "parents must be integers"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
