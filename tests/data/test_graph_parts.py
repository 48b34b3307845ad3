"""The range of the features of all graphs."""

import torch
from tests.data.graph_sets import Rings, ring, sizes

from relbias.data.graph_parts import extremes


def test_the_least_and_the_greatest_of_every_column_and_source():
    first = [ring(2, x=torch.tensor([[1, 8], [2, 3]]), edge_attr=torch.tensor([[0.5], [2.0]] * 2))]
    second = [ring(1, x=torch.tensor([[0, 4]]), edge_attr=torch.zeros(0, 1)), ring(2, x=torch.tensor([[0, 9], [5, 9]]))]
    second[1].edge_attr = torch.tensor([[-1.0]] * 4)
    batch = extremes([first, second])
    assert batch.x.tolist() == [[0, 3], [5, 9]]
    assert batch.edge_attr.tolist() == [[-1.0], [2.0]]
    assert batch.batch.tolist() == [0, 0]


def test_of_a_data_set_of_pyg():
    batch = extremes([Rings(sizes)])
    assert (batch.x.tolist(), batch.edge_attr.tolist()) == ([[0], [3]], [0, 1])


def test_without_features_or_edges():
    batch = extremes([[ring(1, x=None, edge_attr=None)]])
    assert (batch.x.tolist(), batch.edge_attr) == ([[0], [0]], None)
    assert extremes([[ring(1, edge_attr=torch.zeros(0, dtype=torch.int64))]]).edge_attr is None
