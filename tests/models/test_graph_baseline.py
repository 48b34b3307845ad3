"""The GIN beside graph transformers is PyG's."""

import pytest
import torch
from torch_geometric.nn import global_add_pool
from torch_geometric.nn.models import GIN as PyGGIN

from relbias.models.graph_baseline import GIN

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
BATCH = torch.tensor([0, 0, 0, 1, 1, 2])  # the last graph is one node


@pytest.mark.parametrize("categories", [True, False])
def test_the_outputs_are_those_of_pyg(categories):
    torch.manual_seed(0)
    if categories:
        x = torch.stack((torch.randint(5, (6,)), torch.randint(3, (6,))), dim=1)
        network = GIN(num_outputs=2, node_types=[5, 3], dim=8, depth=3)
        table = network.embedding.weight
        nodes = table[:5][x[:, 0]] + table[5:][x[:, 1]]
    else:
        x = torch.randn(6, 3)
        network = GIN(num_outputs=2, node_features=3, dim=8, depth=3)
        nodes = x @ network.embedding.weight.T + network.embedding.bias
    other = PyGGIN(8, 8, 3, norm="batch_norm")
    other.load_state_dict(network.layers.state_dict())
    expected = network.head(global_add_pool(other(nodes, EDGES), BATCH))
    torch.testing.assert_close(network(x, EDGES, BATCH), expected)
    assert network(x, EDGES).shape == (1, 2)
    torch.testing.assert_close(network(x.float(), EDGES, BATCH), expected)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="GIN has no attention, and the encoding is 'table'; give encoding none"):
        GIN("table", num_outputs=1, node_types=3)
    with pytest.raises(ValueError, match=r"column 0 of x holds 3, .* give node_types=\[4, 5\] or more"):
        GIN(num_outputs=1, node_types=[3, 5])(torch.tensor([[3, 0]]), EDGES[:, :0])
    with pytest.raises(ValueError, match="x holds nan in row 1, column 0"):
        GIN(num_outputs=1, node_features=1)(torch.tensor([0.0, torch.nan]), EDGES[:, :0])
    for options in ({}, {"node_types": 3, "node_features": 3}):
        with pytest.raises(ValueError, match="give one of node_types"):
            GIN(num_outputs=1, **options)
