"""The graph transformer in PyG's hands."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig
from torch_geometric.loader import DataLoader

import relbias as rb
from relbias.models import GraphTransformer

ENCODING = {"hops": "table", "edges": "graphormer_edges", "walks": "feature_mlp", "resistance": "feature_mlp"}
PAIRS = ("hops", "last_edges", "walks", "resistance")
SMALL = {"num_outputs": 2, "dim": 16, "depth": 2, "num_heads": 2}


def ring(n, chords=()):
    pairs = [(i, (i + 1) % n) for i in range(n) if n > 2] + list(chords)
    edges = torch.tensor([pair for i, j in pairs for pair in ((i, j), (j, i))], dtype=torch.long).view(-1, 2).T
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
    return Data(x=x, edge_index=edges.contiguous(), edge_attr=(edges.sum(dim=0) % 3)[:, None], y=torch.tensor([n % 2]))


GRAPHS = [ring(6), ring(5, [(0, 2)]), ring(1), ring(2), ring(7, [(0, 3), (1, 4)])]


def make(**options):
    torch.manual_seed(0)
    return GraphTransformer(ENCODING, node_features=3, edge_types=3, walk_steps=4, **{**SMALL, **options}).eval()


@pytest.mark.parametrize("stored", [False, True])
def test_batches_of_a_loader(stored):
    model = make()
    plugin, graphs = rb.plugins.pyg, [graph.clone() for graph in GRAPHS]
    if stored:
        for add in (
            plugin.AddShortestPaths(max_distance=20),
            plugin.AddPathEdges(),
            plugin.AddRandomWalks(4),
            plugin.AddResistances(),
        ):
            graphs = [add(graph) for graph in graphs]
    expected = torch.cat([model(graph.x, graph.edge_index, graph.edge_attr) for graph in GRAPHS])
    out = []
    for data in DataLoader(graphs, batch_size=3):
        pairs = {name: data[name] for name in PAIRS if name in data}
        assert len(pairs) == (4 if stored else 0)
        out.append(model(data.x, data.edge_index, data.edge_attr, data.batch, **pairs))
    torch.testing.assert_close(torch.cat(out), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_explained_by_masks_of_nodes(level):
    model = make(readout="token" if level == "graph" else "nodes")
    config = ModelConfig(mode="multiclass_classification", task_level=level, return_type="raw")
    explainer = Explainer(
        model, GNNExplainer(epochs=5), "model", config, node_mask_type="attributes", edge_mask_type=None
    )
    data = next(iter(DataLoader(GRAPHS, batch_size=5)))
    explanation = explainer(data.x, data.edge_index, edge_attr=data.edge_attr, batch=data.batch)
    mask = explanation.node_mask
    assert mask.shape == data.x.shape
    assert (mask.abs().sum(dim=1) > 0).all()  # every node has a say in its graph
