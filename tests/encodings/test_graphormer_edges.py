from itertools import pairwise

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import relbias as rb
from relbias.encodings import GraphormerEdges
from relbias.relations import EdgePaths, GraphBatch
from relbias.testing import EncodingTestCase


class _Loops(EncodingTestCase):
    """The logits edge by edge, from the forest that the index was made of."""

    encoding = GraphormerEdges

    def make_index(self, n, m):
        self.paths = self.pair_values(n, m)
        return self.relation(*self.paths)

    def logits(self, encoding, q, k, scale, index):
        paths, parents, edges = self.paths
        columns, prefix = self.relation.columns, self.relation.prefix_tokens
        n, m = index.shape
        biases = torch.zeros(2, 4, n, m, dtype=torch.float64)
        for b, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(n), torch.arange(m)).tolist():
            path, steps = (-1 if min(i, j) < prefix else int(paths[b, i - prefix, j - prefix])), []
            while path >= 0:
                steps.insert(0, edges[b, path])
                path = int(parents[b, path])
            for edge, weight in zip(steps, encoding.weights, strict=False):
                if columns:
                    firsts = [sum(columns[:c]) for c in range(len(columns))]
                    types = edge.view(-1).tolist()
                    rows = [encoding.embeddings[t + first] for t, first in zip(types, firsts, strict=True)]
                    embedded = sum(rows) / len(columns)
                else:
                    embedded = edge.double() @ encoding.embeddings
                biases[b, :, i, j] = biases[b, :, i, j] + embedded @ weight / len(steps)
        return scale * q @ k.mT + biases


class TestTypes(_Loops):
    relation = EdgePaths(num_types=(4, 3, 1), max_edges=2, prefix_tokens=1)


class TestFeatures(_Loops):
    relation = EdgePaths(num_features=3, max_edges=4)


del _Loops


def shortest(edges, n):
    """For each pair the numbers of the edges on the path that the rule chooses, in plain loops, or None.

    networkx lists all shortest paths; of parallel edges the first counts; the list read backwards is the least.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    first = {}
    for number, (i, j) in enumerate(edges):
        first.setdefault((i, j), number)
    graph.add_edges_from(first)
    chosen = {}
    for i in range(n):
        reached = nx.single_source_shortest_path_length(graph, i)
        for j in range(n):
            if j not in reached or i == j:
                chosen[i, j] = None if j not in reached else []
                continue
            paths = ([first[step] for step in pairwise(nodes)] for nodes in nx.all_shortest_paths(graph, i, j))
            chosen[i, j] = min(paths, key=lambda path: path[::-1])
    return chosen


def expected_bias(encoding, graphs, attr):
    """(B, H, N, N) in loops over the graphs, the pairs and the edges of their paths."""
    relation, h, n = encoding.relation, encoding.num_heads, graphs.longest
    out = torch.zeros(len(graphs.sizes), h, n, n, dtype=torch.float64)
    for graph, (first, size) in enumerate(zip(graphs.starts.tolist(), graphs.sizes.tolist(), strict=True)):
        own = [e for e, i in enumerate(graphs.edge_index[0].tolist()) if first <= i < first + size]
        edges = [tuple(int(node) - first for node in graphs.edge_index[:, e]) for e in own]
        for (i, j), path in shortest(edges, size).items():
            used = (path or [])[: relation.max_edges]
            for place, number in enumerate(used):
                edge = attr[own[number]]
                embedded = (
                    edge.double() @ encoding.embeddings if relation.num_features else encoding.embeddings[int(edge)]
                )
                out[graph, :, i, j] = out[graph, :, i, j] + embedded @ encoding.weights[place] / len(used)
    return out


@st.composite
def batches(draw):
    """Directed graphs with loops, edges given twice, nodes without edges, and graphs of one node and of none."""
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    edges, start = [], 0
    for n in sizes:
        nodes = st.integers(start, start + n - 1)
        edges += draw(st.lists(st.tuples(nodes, nodes), max_size=14)) if n else []
        start += n
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).T
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return edge_index, sum(sizes), batch, len(sizes)


@given(made=batches(), limit=st.integers(1, 5), seed=st.integers(0, 99), real=st.booleans())
@settings(max_examples=80, deadline=None)
def test_equals_explicit_paths_with_all_gradients(made, limit, seed, real):
    edge_index, num_nodes, batch, count = made
    torch.manual_seed(seed)
    num_edges = edge_index.shape[1]
    attr = torch.randn(num_edges, 2, dtype=torch.float64) if real else torch.randint(3, (num_edges,))
    attr.requires_grad_(real)
    relation = EdgePaths(num_features=2, max_edges=limit) if real else EdgePaths(3, limit)
    encoding = GraphormerEdges(2, 4, relation, dtype=torch.float64)
    torch.nn.init.normal_(encoding.embeddings)
    torch.nn.init.normal_(encoding.weights)
    graphs = GraphBatch(edge_index, num_nodes, batch, num_graphs=count, edge_attr=attr)
    index = relation.of_graphs(graphs)
    (entry,) = encoding(index).entries
    bias = entry.b[:, index.codes()[:, 0]].transpose(0, 1)
    expected = expected_bias(encoding, graphs, attr)
    torch.testing.assert_close(bias, expected, rtol=0, atol=1e-12)
    wanted, grad = [*encoding.parameters(), *([attr] if real else [])], torch.randn_like(bias)
    if expected.requires_grad:
        got, theirs = (
            torch.autograd.grad(x, wanted, grad, allow_unused=True, materialize_grads=True) for x in (bias, expected)
        )
        for mine, other in zip(got, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("real", [False, True])
def test_a_batch_equals_its_graphs_one_by_one(real):
    torch.manual_seed(0)
    parts = [nx.gnp_random_graph(n, 0.4, seed=n, directed=True) for n in (5, 1, 8, 3)]
    edges = [torch.tensor(list(g.edges), dtype=torch.long).view(-1, 2).T for g in parts]
    attrs = [torch.randn(e.shape[1], 2) if real else torch.randint(4, (e.shape[1], 1)).float() for e in edges]
    relation = EdgePaths(num_features=2, prefix_tokens=1) if real else EdgePaths(4, prefix_tokens=1)
    encoding = GraphormerEdges(2, 4, relation)
    sizes = [len(g) for g in parts]
    starts = [sum(sizes[:place]) for place in range(4)]
    graphs = GraphBatch(
        torch.cat([e + start for e, start in zip(edges, starts, strict=True)], dim=1),
        sum(sizes),
        torch.arange(4).repeat_interleave(torch.tensor(sizes)),
        edge_attr=torch.cat(attrs),
    )
    q = torch.randn(4, 2, 9, 4)

    def bias_of(batch, q):
        (entry,) = encoding(relation.of_graphs(batch)).entries
        return entry.b[:, entry.index.codes()[:, 0]].transpose(0, 1)

    together = bias_of(graphs, q)
    for place, (e, attr, n) in enumerate(zip(edges, attrs, sizes, strict=True)):
        alone = bias_of(GraphBatch(e, n, edge_attr=attr), q)
        torch.testing.assert_close(together[place, :, : n + 1, : n + 1], alone[0])
        assert not together[place, :, n + 1 :].any()
        assert not together[place, :, 0].any()


def test_the_order_of_nodes_does_not_matter():
    torch.manual_seed(0)
    tree = nx.random_labeled_tree(14, seed=3)  # where every path is the only one
    edges = torch.tensor([*tree.edges, *((j, i) for i, j in tree.edges)]).T
    attr, order = torch.randint(4, (26,)), torch.randperm(14)
    relation = EdgePaths(4, 3)
    attention = rb.RelativeAttention(8, 2, "graphormer_edges", relation).double()
    torch.nn.init.normal_(attention.encoding.embeddings)
    x = torch.randn(1, 14, 8, dtype=torch.float64)
    out = attention(x, index=relation.of_graphs(GraphBatch(edges, 14, edge_attr=attr)))
    renamed = order.argsort()[edges]  # node order[p] of the first graph is node p of the second
    shuffle = torch.randperm(26)
    graphs = GraphBatch(renamed[:, shuffle], 14, edge_attr=attr[shuffle])
    torch.testing.assert_close(attention(x[:, order], index=relation.of_graphs(graphs)), out[:, order])


def test_long_paths_cost_no_more_places():
    """A table has a column for each path that differs from the others within its first L edges."""
    n = 40
    edges = torch.stack((torch.arange(n - 1), torch.arange(1, n)))
    relation = EdgePaths(2, 3)
    graphs = GraphBatch(edges, n, edge_attr=torch.arange(n - 1) % 2)
    (entry,) = GraphormerEdges(2, 4, relation)(relation.of_graphs(graphs)).entries
    assert entry.b.shape == (2, 1 + 2 * 3)


def test_blocks_of_rows_equal_the_whole():
    torch.manual_seed(0)
    graph = nx.gnp_random_graph(30, 0.1, seed=1, directed=True)
    edges = torch.tensor(list(graph.edges)).T
    relation = EdgePaths(num_features=2)
    attention = rb.RelativeAttention(8, 2, "graphormer_edges", relation)
    index = relation.of_graphs(GraphBatch(edges, 30, edge_attr=torch.randn(edges.shape[1], 2)))
    x = torch.randn(1, 30, 8)
    outs = []
    for implementation in ("reference", "blockwise"):
        attention.implementation = implementation
        out = attention(x, index=index)
        outs.append((out, *torch.autograd.grad(out.square().sum(), list(attention.parameters()))))
    for mine, theirs in zip(*outs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 2])
def test_compiled_with_the_index_made_inside(columns):
    relation = EdgePaths((2,) * columns, 3)
    encoding = GraphormerEdges(2, 4, relation)
    edges = torch.stack((torch.arange(8), torch.arange(1, 9)))  # longer paths than three edges too
    attr = torch.randint(2, (8, columns), generator=torch.Generator().manual_seed(0))

    def bias(edges, attr):
        index = relation.of_graphs(GraphBatch(edges, 9, edge_attr=attr))
        (entry,) = encoding(index).entries
        return entry.b[:, index.codes()[0, 0]]

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(bias, backend="eager")(edges, attr), bias(edges, attr))
