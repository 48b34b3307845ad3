"""The types of edges as codes."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import EdgeTypes, GraphBatch, Pairs, edge_types


def loop(edges, types, n, num_types, prefix):
    codes = [[num_types] * n for _ in range(n)]
    for (i, j), kind in zip(edges, types, strict=True):
        codes[i][j] = kind
    for i in range(n):
        codes[i][i] = num_types + 1
    total = n + prefix
    return torch.tensor(
        [
            [num_types + 2 if min(i, j) < prefix else codes[i - prefix][j - prefix] for j in range(total)]
            for i in range(total)
        ],
        dtype=torch.long,
    ).view(total, total)


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("n", "edges", "types"),
    [
        (0, [], []),
        (1, [], []),
        (1, [(0, 0)], [3]),
        (5, [(0, 1), (1, 0), (3, 4), (2, 2)], [3, 1, 0, 2]),  # directed, disconnected, a self loop
    ],
)
def test_equals_the_loop(n, edges, types, dtype, prefix):
    edge_index = torch.tensor(edges, dtype=dtype).view(-1, 2).T  # non-contiguous
    codes = edge_types(edge_index, torch.tensor(types, dtype=dtype), n, 4, prefix_tokens=prefix)
    assert torch.equal(codes, loop(edges, types, n, 4, prefix))
    assert Pairs(7)(codes).shape == (n + prefix, n + prefix)


def test_a_node_and_itself_is_not_a_pair_without_an_edge():
    codes = edge_types(torch.tensor([[0], [1]]), torch.tensor([0]), num_nodes=2, num_types=1)
    assert codes.tolist() == [[2, 0], [1, 2]]


@pytest.mark.parametrize(
    ("edges", "types", "message"),
    [
        ([[0, 0], [1, 1]], [0, 1], "two edges of other types, 0 and 1, join node 0 to 1 in graph 0"),
        ([[0], [3]], [0], "nodes from 0 to 3, expected 0 to 2"),
        ([[-1], [2]], [0], "nodes from -1 to 2"),
        ([[0], [1]], [2], "types from 2 to 2, expected 0 to 1"),
        ([[0, 1]], [0, 0], r"edge_index has shape \(2, E\).*got \(1, 2\) and \(2,\)"),
        ([[0.0], [1.0]], [0], "edge_index must be integers, got torch.float32"),
        ([[0], [1]], [True], "the types of edges must be integers, got torch.bool"),
    ],
)
def test_bad_edges(edges, types, message):
    with pytest.raises(ValueError, match=message):
        edge_types(torch.tensor(edges), torch.tensor(types), num_nodes=3, num_types=2)


@pytest.mark.parametrize("sizes", [(-1, 2, 0), (3, 0, 0), (3, 2, -1), (2.0, 2, 0)])
def test_bad_sizes(sizes):
    with pytest.raises(ValueError, match="must be an integer of at least"):
        edge_types(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long), *sizes)


def graphs(edge_attr, edges=((0, 1, 3, 4), (1, 0, 4, 3))):
    """A pair of nodes and one alone, then a pair."""
    return GraphBatch(torch.tensor(edges), 5, torch.tensor([0, 0, 0, 1, 1]), edge_attr=edge_attr)


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.uint8])
@pytest.mark.parametrize("columns", [0, 1, 3])
def test_of_graphs_equals_the_graphs_one_by_one(prefix, dtype, columns):
    types = torch.tensor([3, 1, 0, 2])
    attr = types.to(dtype) if columns == 0 else torch.stack([types + 7 * c for c in range(columns)], dim=1).to(dtype)
    relation = EdgeTypes(4, prefix_tokens=prefix)
    codes = relation.of_graphs(graphs(attr)).codes()[:, 0]
    assert codes.shape == (2, 3 + prefix, 3 + prefix)
    first = edge_types(torch.tensor([[0, 1], [1, 0]]), types[:2], 3, 4, prefix)
    second = edge_types(torch.tensor([[0, 1], [1, 0]]), types[2:], 2, 4, prefix)
    assert torch.equal(codes[0], first)
    assert torch.equal(codes[1, : 2 + prefix, : 2 + prefix], second)


def test_edges_given_twice_and_loops_of_any_type():
    edges, types = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]), torch.tensor([2, 2, 0, 1])
    expected = [[4, 2], [3, 4]]
    assert edge_types(edges, types, 2, 3).tolist() == expected
    assert EdgeTypes(3).of_graphs(GraphBatch(edges, 2, edge_attr=types)).codes()[0, 0].tolist() == expected


def test_edges_without_types_are_alike():
    assert EdgeTypes(1).of_graphs(graphs(None)).codes()[1, 0].tolist() == [[2, 0, 1], [0, 2, 1], [1, 1, 2]]
    with pytest.raises(ValueError, match="no edge_attr, expected edges of 4 types"):
        EdgeTypes(4).of_graphs(graphs(None))


def test_no_edge_and_no_node():
    nothing = torch.zeros(2, 0, dtype=torch.long)
    for attr in (None, torch.zeros(0), torch.zeros(0, 1)):
        assert EdgeTypes(1).of_graphs(GraphBatch(nothing, 1, edge_attr=attr)).codes().tolist() == [[[[2]]]]
        assert EdgeTypes(1).of_graphs(GraphBatch(nothing, 0, edge_attr=attr)).shape == (0, 0)


def test_it_serves_where_pairs_do():
    relation = EdgeTypes(2, prefix_tokens=1)
    assert (relation.num_codes, repr(relation)) == (5, "EdgeTypes(num_types=2, prefix_tokens=1)")
    index = relation(torch.tensor([[3, 0], [1, 3]]))
    assert index.codes()[0, 0].tolist() == [[4, 4, 4], [4, 3, 0], [4, 1, 3]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EdgeTypes(0), "num_types must be an integer of at least 1, got 0"),
        (lambda: EdgeTypes(1, -1), "prefix_tokens must be an integer of at least 0, got -1"),
        (lambda: EdgeTypes(2)(torch.tensor([[5]])), "takes codes from 0 to 4, got 5"),
        (
            lambda: EdgeTypes(2).of_graphs(graphs(torch.tensor([0, 1, 2, 1]))),
            "edge 2 has the type 2 in column 0.*0 to 1",
        ),
        (lambda: EdgeTypes(2).of_graphs(graphs(torch.tensor([0, 1, -1, 1]))), "edge 2 has the type -1"),
        (lambda: EdgeTypes(2).of_graphs(graphs(torch.tensor([0.0, 0.5, 1, 1]))), "edge_attr holds 0.5, expected types"),
        (lambda: EdgeTypes(2).of_graphs(graphs(torch.tensor([0.0, torch.nan, 1, 1]))), "edge_attr holds nan"),
        (lambda: EdgeTypes(2).of_graphs(graphs(torch.zeros(3))), r"\(4, F\) or \(4,\), got \(3,\)"),
        (lambda: EdgeTypes(2).of_graphs(graphs(torch.zeros(4, 1, 1))), r"got \(4, 1, 1\)"),
        (
            lambda: EdgeTypes(2).of_graphs(graphs(torch.tensor([0, 0, 0, 1]), ((0, 1, 3, 3), (1, 0, 4, 4)))),
            "two edges of other types, 0 and 1, join node 0 to 1 in graph 1",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
