"""Graphs as real data has them, through the data module, the transformer and the task, with every kind of structure."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch_geometric.data import Batch, Data

from relbias.data import GraphData
from relbias.models import GraphTransformer
from relbias.tasks import GraphPrediction

STRUCTURES = {
    "none": "none",
    "hops": "table",
    "edges": {"hops": "table", "edges": "graphormer_edges"},
    "edge_types": {"hops": "table", "edge_types": "table"},
    "walks": {"walks": "feature_mlp"},
}


def graph(num_nodes, edges, attr="column"):
    """Undirected edges, the numbers of whose types are those of their first nodes, modulo 3."""
    both = torch.tensor([*edges, *((j, i) for i, j in edges)], dtype=torch.int64).view(-1, 2).t().contiguous()
    types = torch.tensor([min(edge) % 3 for edge in both.t().tolist()], dtype=torch.int64)
    given = {
        "column": {"edge_attr": types},
        "matrix": {"edge_attr": types[:, None]},
        "floats": {"edge_attr": torch.stack((types / 2, types + 0.25), dim=1)},
        "absent": {},
    }[attr]
    x = torch.arange(num_nodes)[:, None] % 5
    return Data(x=x, edge_index=both, y=torch.tensor([float(num_nodes)]) + 0.5 * len(edges), **given)


def traps(attr="column"):
    return [
        graph(4, [(0, 1), (1, 2), (2, 3), (3, 0)], attr),
        graph(5, [(0, 1), (3, 4)], attr),  # not connected
        graph(1, [], attr),  # a single atom
        graph(6, [(0, 1), (1, 2)], attr),  # the last nodes are isolated
        graph(3, [], attr),  # no edge at all
        graph(3, [(0, 1), (0, 1), (1, 2), (2, 2)], attr),  # an edge twice, and one from a node to itself
    ]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("attr", ["column", "matrix", "floats", "absent"])
def test_a_batch_trains_and_gives_what_its_graphs_give_one_by_one(structure, attr):
    torch.manual_seed(0)
    options = {"column": {"edge_types": 3}, "matrix": {"edge_types": 3}, "floats": {"edge_features": 2}, "absent": {}}
    if (structure, attr) == ("edge_types", "floats"):
        with pytest.raises(ValueError, match="needs edges of categories; give edge_types, not edge_features"):
            GraphTransformer(STRUCTURES[structure], num_outputs=1, node_types=5, edge_features=2)
        return
    network = GraphTransformer(
        STRUCTURES[structure], num_outputs=1, node_types=5, dim=8, depth=2, num_heads=2, readout="sum", **options[attr]
    )
    data = GraphData(lambda: traps(attr) * 5, batch_size=6)
    task = GraphPrediction(lambda encoding: network, "none")
    data.adapt_to(task)
    data.setup()
    task.check_batch(next(iter(data.val_dataloader())))
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    Trainer(max_epochs=1, accelerator="cpu", logger=False, gradient_clip_val=1.0, **quiet).fit(task, datamodule=data)
    assert all(parameter.isfinite().all() for parameter in network.parameters())
    task.eval().double()
    with torch.no_grad():
        together = task(Batch.from_data_list(traps(attr)))
        alone = torch.cat([task(Batch.from_data_list([one])) for one in traps(attr)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)
    # without structure the two graphs of three nodes are the same
    assert len(together.unique()) == len(together) - (structure == "none")


def test_a_graph_that_is_too_large_is_refused_with_the_memory_it_takes():
    network = GraphTransformer("table", num_outputs=1, node_types=5, dim=8, depth=1, num_heads=2)
    large = Data(x=torch.zeros(40_000, 1, dtype=torch.int64), edge_index=torch.tensor([[0], [1]]), y=torch.ones(1) / 2)
    task = GraphPrediction(lambda encoding: network, "none")
    task.adapt("regression", 1)
    with pytest.raises(
        ValueError, match=r"a graph of 40000 nodes has too many .* would take \d+\.\d GiB; take subgraphs"
    ):
        task.check_batch(Batch.from_data_list([large]))
