"""A graph transformer of PyG for the tests."""

from functools import partial

import torch
from tests.plugins.pyg.graphs import random_graph, traps
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv, GPSConv


class GPS(nn.Module):
    """Layers of GPSConv, whose local convolution sees the edges; `reentrant` says how layers are checkpointed."""

    def __init__(self, depth=3, dim=16, norm="batch_norm", dropout=0.0, **options):
        super().__init__()
        self.edge = nn.Embedding(3, dim)
        self.node = nn.Linear(4, dim)
        self.convs = nn.ModuleList(
            GPSConv(dim, GINEConv(nn.Linear(dim, dim)), heads=4, norm=norm, dropout=dropout, **options)
            for _ in range(depth)
        )
        self.reentrant = None

    def forward(self, x, edge_index, batch=None, edge_attr=None):
        x, edges = self.node(x), self.edge(edge_attr)
        for conv in self.convs:
            if self.reentrant is None:
                x = conv(x, edge_index, batch, edge_attr=edges)
            else:
                x = checkpoint(partial(_call, conv), x, edge_index, batch, edges, use_reentrant=self.reentrant)
        return x


def _call(conv, x, edge_index, batch, edges):
    return conv(x, edge_index, batch, edge_attr=edges)


def make(**options):
    torch.manual_seed(0)
    return GPS(**options).eval()


def call(model, data):
    return model(data.x, data.edge_index, getattr(data, "batch", None), data.edge_attr)


def batch_of_traps():
    """With a graph without nodes in the middle."""
    graphs = traps()
    return Batch.from_data_list([*graphs[:3], random_graph(0, 0, 9), *graphs[3:]])
