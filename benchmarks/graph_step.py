"""What relations add to a training step of a small graph transformer, on one thread.

    python benchmarks/graph_step.py
    python benchmarks/graph_step.py --quick

The model has 5 layers, width 64 and 8 heads, and sums the nodes; the batch has 64 random molecules of about 23 nodes,
those of shortest_paths.py. A step is forward and backward, without an optimizer. Relations are made from the edges in
each step, except in the row "hops, stored", where the batch has what the transform AddShortestPaths stores. The second
table shows what making the hops takes, as a share of that row's step: in the model for the whole batch, and by the
transform graph after graph, as in a loader that transforms anew in each epoch.

Process time, all in turn in each round, in another order each time. A ratio is taken within a round; shown are the
median and, in brackets, the quartiles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from shortest_paths import molecules
from torch_geometric.data import Batch, Data

import relbias as rb
from relbias.bench.timing import interleaved
from relbias.cli.provenance import commit, machine
from relbias.relations import GraphBatch

ELEMENTS, BONDS, MAX_HOPS = 16, 5, 20
ENCODINGS: dict[str, Any] = {
    "none": "none",
    "none, again": "none",
    "hops, stored": {"hops": "table"},
    "hops": {"hops": "table"},
    "hops and edge types": {"hops": "table", "edge_types": "table"},
    "hops and edges, 5 of a path": {"hops": "table", "edges": "graphormer_edges"},
    "walks, 16 steps": {"walks": "feature_mlp"},
}


def graphs(count: int) -> list[Data]:
    """Random molecules with an element for each node and a kind for each bond, which lies there in both directions."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for n, edges in zip(*molecules(count), strict=True):
        x = torch.randint(ELEMENTS, (n, 1), generator=generator)
        kinds = torch.randint(BONDS, (edges.shape[1] // 2,), generator=generator).repeat_interleave(2)
        made.append(Data(x=x, edge_index=edges, edge_attr=kinds))
    return made


def steps(bare: list[Data]) -> dict[str, Callable[[], object]]:
    """A training step with each relation, by name."""
    stored = Batch.from_data_list([rb.plugins.pyg.AddShortestPaths(MAX_HOPS)(graph) for graph in bare])
    return {name: _step(encoding, stored, name == "hops, stored") for name, encoding in ENCODINGS.items()}


def _step(encoding: Any, batch: Batch, is_stored: bool) -> Callable[[], torch.Tensor]:
    torch.manual_seed(0)
    model = rb.models.GraphTransformer(
        encoding, num_outputs=1, node_types=ELEMENTS, edge_types=BONDS, dim=64, depth=5, num_heads=8, readout="sum",
        max_hops=MAX_HOPS, path_edges=5, walk_steps=16,
    )  # fmt: skip
    pairs = {"hops": batch.hops} if is_stored else {}

    def step() -> torch.Tensor:
        model.zero_grad()
        outputs = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, **pairs)
        outputs.square().sum().backward()
        return outputs.detach()

    return step


def makers(bare: list[Data]) -> dict[str, Callable[[], object]]:
    """The ways to make the hops of a batch, by name."""
    batch = Batch.from_data_list(bare)
    transform, relation = rb.plugins.pyg.AddShortestPaths(MAX_HOPS), rb.relations.Hops(MAX_HOPS)
    return {
        "in the model": lambda: relation.of_graphs(GraphBatch(batch.edge_index, batch.num_nodes, batch.batch)),
        "by the transform, graph after graph": lambda: [transform(graph) for graph in bare],
    }


def quartiles(values: Sequence[float], unit: Sequence[float], percent: bool = False) -> str:
    """The median and the quartiles of ratios within each round."""
    ratios = numpy.quantile(numpy.array(values) / numpy.array(unit), [0.25, 0.5, 0.75])
    low, middle, high = (f"{100 * ratio:.1f}" if percent else f"{ratio:.2f}" for ratio in ratios)
    return f"{middle}{' %' if percent else ''} ({low}-{high})"


def main(argv: list[str]) -> int:
    """Print the two tables.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=64, help="of the batch (default: 64)")
    parser.add_argument("--rounds", type=int, default=9, help="(default: 9)")
    parser.add_argument("--quick", action="store_true", help="4 graphs, 2 rounds")
    options = parser.parse_args(argv)
    count, rounds = (4, 2) if options.quick else (options.graphs, options.rounds)
    bare = graphs(count)
    training, making = steps(bare), makers(bare)
    if not torch.equal(training["hops"](), training["hops, stored"]()):
        raise RuntimeError("stored hops give other outputs than those made from the edges")
    runs = training | making
    times = dict(zip(runs, interleaved(list(runs.values()), rounds, torch.device("cpu")), strict=True))
    print(f"| a step with {count} graphs | ms | times as long as none |\n|---|---|---|")
    for name in training:
        print(f"| {name} | {1000 * numpy.median(times[name]):.1f} | {quartiles(times[name], times['none'])} |")
    step = times["hops, stored"]
    print(f"\n| hops of {count} graphs, made | ms | of a step with stored hops |\n|---|---|---|")
    for name in making:
        print(f"| {name} | {1000 * numpy.median(times[name]):.2f} | {quartiles(times[name], step, percent=True)} |")
    print(f"\n{rounds} rounds. {machine()}. Commit {commit()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
