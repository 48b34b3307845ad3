"""Random walks and resistances of batches of graphs against numpy and loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.encodings import FeatureMLP
from relbias.relations import GraphBatch, RandomWalks, Resistances

NOTHING = torch.zeros(2, 0, dtype=torch.long)


@st.composite
def graphs(draw, undirected=False):
    """A batch of graphs: directed or not, with loops, edges given several times, and nodes without edges."""
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    edges, start = [], 0
    for n in sizes:
        nodes = st.integers(start, start + n - 1)
        edges += draw(st.lists(st.tuples(nodes, nodes), max_size=12)) if n else []
        start += n
    if undirected:
        edges = [pair for i, j in edges for pair in ([(i, j), (j, i)] if i != j else [(i, i)])]
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).T
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return GraphBatch(edge_index, sum(sizes), batch, num_graphs=len(sizes))


def matrices(batch):
    """The adjacency matrix of each graph, made edge by edge."""
    starts = batch.starts.tolist()
    made = [np.zeros((n, n)) for n in batch.sizes.tolist()]
    for i, j in batch.edge_index.T.tolist():
        graph = int(batch.graph_of_nodes[i])
        made[graph][i - starts[graph], j - starts[graph]] += 1
    return made


@given(batch=graphs(), steps=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_walks_are_powers_of_the_matrix_of_one_step(batch, steps):
    got = RandomWalks(steps).of_graphs(batch).features()
    assert got.shape == (len(batch.sizes), batch.longest, batch.longest, steps)
    for graph, matrix in enumerate(matrices(batch)):
        n = len(matrix)
        step = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        for k in range(steps):
            np.testing.assert_allclose(got[graph, :n, :n, k], np.linalg.matrix_power(step, k), atol=1e-6)


@given(batch=graphs(undirected=True))
@settings(max_examples=60, deadline=None)
def test_resistances_are_those_of_the_pseudo_inverse_of_each_component(batch):
    got = Resistances().of_graphs(batch).features()
    for graph, matrix in enumerate(matrices(batch)):
        n = len(matrix)
        reached = np.linalg.matrix_power(np.eye(n) + matrix, n) > 0
        laplacian = np.diag(matrix.sum(axis=1)) - matrix
        expected = np.zeros((n, n))
        for node in range(n):
            part = np.flatnonzero(reached[node])
            inverse = np.linalg.pinv(laplacian[np.ix_(part, part)])
            place = int(np.flatnonzero(part == node)[0])
            expected[node, part] = inverse[place, place] + np.diag(inverse) - 2 * inverse[place]
        np.testing.assert_allclose(got[graph, :n, :n, 0], expected, atol=1e-5)
        np.testing.assert_array_equal(got[graph, :n, :n, 1], ~reached)


@given(batch=graphs())
@settings(max_examples=30, deadline=None)
def test_adjacency_and_degrees_count_edges(batch):
    adjacency, (arriving, leaving) = batch.adjacency(), batch.degrees
    for graph, (matrix, first) in enumerate(zip(matrices(batch), batch.starts.tolist(), strict=True)):
        n = len(matrix)
        np.testing.assert_array_equal(adjacency[graph, :n, :n], matrix)
        np.testing.assert_array_equal(arriving[first : first + n], matrix.sum(axis=0))
        np.testing.assert_array_equal(leaving[first : first + n], matrix.sum(axis=1))
    assert adjacency.sum() == batch.edge_index.shape[1]


def test_a_walk_takes_edges_given_twice_twice_as_often():
    batch = GraphBatch(torch.tensor([[0, 0, 0, 1], [1, 1, 2, 1]]), 3)
    walks = RandomWalks(3).of_graphs(batch).features()[0]
    torch.testing.assert_close(walks[0, :, 1], torch.tensor([0.0, 2 / 3, 1 / 3]))
    assert walks[1, :, 2].tolist() == [0.0, 1.0, 0.0]  # the edge from a node to itself
    assert not walks[2, :, 1:].any()


def test_weights_of_edges():
    batch = GraphBatch(torch.tensor([[0, 0, 2], [1, 1, 3]]), 4, torch.tensor([0, 0, 1, 1]))
    weights = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    adjacency = batch.adjacency(weights)
    assert adjacency.tolist() == [[[0.0, 2.5], [0.0, 0.0]], [[0.0, 3.0], [0.0, 0.0]]]
    adjacency.sum().backward()
    assert weights.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("relation", [RandomWalks(4), Resistances()], ids=str)
def test_what_was_made_beforehand_is_taken(relation):
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    batch = torch.tensor([0, 0, 0, 1, 1])
    made = relation.of_graphs(GraphBatch(edges, 5, batch)).features()
    name = "walks" if isinstance(relation, RandomWalks) else "resistance"
    flat = torch.cat((made[0].flatten(0, 1), made[1, :2, :2].flatten(0, 1))) + 1.0
    taken = relation.of_graphs(GraphBatch(edges, 5, batch, pairs={name: flat})).features()
    assert torch.equal(taken[0], made[0] + 1.0)
    assert torch.equal(taken[1, :2, :2], made[1, :2, :2] + 1.0)
    with pytest.raises(ValueError, match=rf"takes {relation.num_given} values for each pair, got '{name}' of shape"):
        relation.of_graphs(GraphBatch(edges, 5, batch, pairs={name: flat[:, :1]}))


@pytest.mark.parametrize("relation", [RandomWalks(3, prefix_tokens=2), Resistances(prefix_tokens=2)], ids=str)
def test_pairs_with_a_prefix_token_have_a_feature_of_their_own(relation):
    batch = GraphBatch(torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), 4)
    alone = type(relation)(*([3] if isinstance(relation, RandomWalks) else [])).of_graphs(batch).features()
    index = relation.of_graphs(batch)
    features, count = index.features(), relation.num_features
    assert index.shape == (6, 6)
    assert index.code_space == relation.code_space == (count,)
    assert torch.equal(features[:, 2:, 2:, : count - 1], alone)
    assert not features[:, 2:, 2:, count - 1].any()
    for pairs in (features[:, :2], features[:, :, :2]):
        assert not pairs[..., : count - 1].any()
        assert (pairs[..., count - 1] == 1).all()


@pytest.mark.parametrize("relation", [RandomWalks(3, 1), Resistances(1)], ids=str)
def test_padding_gives_no_nan(relation):
    edges = torch.tensor([[1, 2, 4, 5], [2, 1, 5, 4]])
    batch = GraphBatch(edges, 6, torch.tensor([0, 2, 2, 2, 2, 2]), num_graphs=4)  # graphs 1 and 3 have no node
    encoding = FeatureMLP(4, 16, relation)
    (entry,) = encoding(relation.of_graphs(batch)).entries
    entry.b(slice(None)).square().sum().backward()
    assert entry.b(slice(None)).isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in encoding.parameters())


@pytest.mark.parametrize("nodes", [0, 1, 3])
def test_no_edge(nodes):
    batch = GraphBatch(NOTHING, nodes)
    assert torch.equal(RandomWalks(2).of_graphs(batch).features()[0, ..., 0], torch.eye(nodes))
    assert torch.equal(Resistances().of_graphs(batch).features()[0, ..., 1], 1 - torch.eye(nodes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RandomWalks(0), "num_steps must be an integer of at least 1, got 0"),
        (lambda: RandomWalks(2, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: Resistances(-1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: RandomWalks(3)(torch.zeros(2, 2, 4)), r"\(N, M, 3\).*got \(2, 2, 4\)"),
        (lambda: RandomWalks(1, 1)(torch.full((2, 2, 1), torch.nan)), "must be finite"),
        (lambda: Resistances().of_graphs(GraphBatch(torch.tensor([[0], [1]]), 2)), "give each edge in both directions"),
        (lambda: GraphBatch(NOTHING, 2).adjacency(torch.zeros(1)), r"shape \(0,\) and are floating, got \(1,\)"),
        (lambda: GraphBatch(NOTHING, 2).adjacency(torch.zeros(0, dtype=torch.long)), "got .*int64"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
