import pytest
import torch

from relbias.models.graph_inputs import NodeEmbedding, as_categories
from relbias.relations import GraphBatch

EDGES = torch.tensor([[0, 0, 1, 2, 2], [1, 2, 0, 2, 2]])
GRAPH = GraphBatch(EDGES, num_nodes=4)


def test_categories_in_columns_are_summed():
    nodes = NodeEmbedding(6, types=[3, 4])
    x = torch.tensor([[0, 3], [2, 0], [1, 1], [2, 3]])
    expected = nodes.categories[0].weight[x[:, 0]] + nodes.categories[1].weight[x[:, 1]]
    for given in (x, x.int(), x.float(), x.double()):
        torch.testing.assert_close(nodes(given, GRAPH), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.uint16])
def test_more_categories_than_a_narrow_dtype_has(dtype):
    x = torch.tensor([0, 100, 7, 100])
    assert torch.equal(as_categories(x.to(dtype), [40_000], "x", "node_types")[:, 0], x)
    with pytest.raises(ValueError, match="x holds 100, expected categories from 0 to 99; give node_types=101 or more"):
        as_categories(x.to(dtype), [100], "x", "node_types")


@pytest.mark.parametrize("x", [torch.tensor([0, 2, 1, 1]), torch.tensor([[0.0], [2.0], [1.0], [1.0]])], ids=str)
def test_one_column(x):
    nodes = NodeEmbedding(6, types=3)
    torch.testing.assert_close(nodes(x, GRAPH), nodes.categories[0].weight[x.flatten().long()])


def test_real_numbers():
    nodes = NodeEmbedding(6, num_features=2).double()
    x = torch.randn(4, 2)
    torch.testing.assert_close(nodes(x, GRAPH), x.double() @ nodes.linear.weight.T + nodes.linear.bias)
    one = NodeEmbedding(6, num_features=1)
    torch.testing.assert_close(one(torch.tensor([1, 2, 3, 4]), GRAPH)[3], 4 * one.linear.weight[:, 0] + one.linear.bias)


def test_without_features_all_nodes_start_alike():
    nodes = NodeEmbedding(6)
    torch.testing.assert_close(nodes(None, GRAPH), nodes.constant.expand(4, 6))


def test_degrees_are_kept_apart_and_clipped():
    nodes = NodeEmbedding(6, max_degree=2)
    arriving, leaving = [1, 1, 2, 0], [2, 1, 2, 0]  # node 2 has the edge to itself twice, and one more arrives
    expected = nodes.constant + nodes.in_degree.weight[arriving] + nodes.out_degree.weight[leaving]
    torch.testing.assert_close(nodes(None, GRAPH), expected)


@pytest.mark.parametrize(
    ("values", "types", "message"),
    [
        (torch.tensor([0, 3]), [3], r"x holds 3, expected categories from 0 to 2; give node_types=4 or more"),
        (torch.tensor([[0, 0], [0, 7]]), [3, 5], r"column 1 of x holds 7, .* 0 to 4; give node_types=\[3, 8\] or more"),
        (torch.tensor([[-1, 0]]), [3, 5], "column 0 of x holds -1, .*; count them from 0"),
        (torch.tensor([0.5]), [3], "x holds 0.5, .*; for real numbers give node_features instead of node_types"),
        (torch.tensor([float("nan")]), [3], "x holds nan, expected categories"),
        (torch.tensor([float("inf")]), [3], "x holds inf, expected categories"),
        (torch.tensor([[0, 1]]), [3], r"x must have shape \(n,\) or \(n, 1\)"),
        (torch.tensor([0, 1]), [3, 3], r"x must have shape \(n, 2\)"),
    ],
    ids=str,
)
def test_says_what_is_wrong_with_categories(values, types, message):
    with pytest.raises(ValueError, match=message) as caught:
        as_categories(values, types, "x", "node_types")
    assert "\n" not in str(caught.value)


def test_says_what_is_wrong_with_numbers():
    nodes = NodeEmbedding(6, num_features=2)
    x = torch.zeros(4, 2)
    x[3, 1] = torch.nan
    with pytest.raises(ValueError, match="x holds nan in row 3, column 1; fill in or leave out what is missing"):
        nodes(x, GRAPH)
    with pytest.raises(
        ValueError, match=r"x must have shape \(n, 2\), .* give node_features the number of its columns"
    ):
        nodes(torch.zeros(4, 3), GRAPH)


def test_says_that_features_are_missing_or_unexpected():
    with pytest.raises(ValueError, match="the model has node_types and x is None"):
        NodeEmbedding(6, types=3)(None, GRAPH)
    with pytest.raises(ValueError, match="the model has no features of nodes"):
        NodeEmbedding(6)(torch.zeros(4), GRAPH)
