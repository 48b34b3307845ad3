"""Memory and time of training on one large graph with an output for each node: python benchmarks/graph_nodes.py

A graph transformer (width 32, 2 layers, 4 heads) on a random graph, without any relation and with a table over hops.
All is measured on one thread, each in a process of its own. A step is forward, backward and Adam. Its memory is counted
twice: the highest resident memory of the process after two steps less that before them, in which freed memory is that
the allocator keeps, and the tensors alone, by torch's own records. The time is the processor's for the second step.
Distances are made beforehand, as a data set keeps them; what making them takes is told apart. Beside it stands what one
float32 number for each head and each pair of nodes takes, as a mask of one layer would hold, without its gradient.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.nn import functional as F

import relbias as rb
from relbias.bench.memory import peak_memory

HEADS, MIB = 4, 2**20
ROWS = {
    "a step without relation": "none",
    "a step with a table over hops": "table",
    "distances, once": "distances",
}


def peak() -> float:
    """The highest resident memory of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage knows of the parent process's memory too
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


def random_graph(nodes: int, degree: int) -> torch.Tensor:
    """A graph with a mean degree, its edges in both directions, (2, nodes * degree)."""
    edges = torch.randint(0, nodes, (2, nodes * degree // 2), generator=torch.Generator().manual_seed(0))
    return torch.cat((edges, edges.flip(0)), dim=1)


def make_distances(edges: torch.Tensor, nodes: int, file: Path) -> dict[str, float]:
    """What distances take, in MiB and seconds; they go into a file, flat as a batch of graphs keeps them."""
    before, start = peak(), time.process_time()
    hops = rb.relations.shortest_paths(edges, nodes, max_distance=20)
    numbers = {"seconds": time.process_time() - start, "resident": peak() - before}
    torch.save(hops.flatten(), file)
    return numbers


def train(encoding: str, edges: torch.Tensor, nodes: int, file: Path) -> dict[str, float]:
    """What a training step takes, in MiB and seconds."""
    torch.manual_seed(0)
    pairs = {} if encoding == "none" else {"hops": torch.load(file)}
    model = rb.models.GraphTransformer(
        encoding, num_outputs=2, node_features=8, dim=32, depth=2, num_heads=HEADS, readout="nodes"
    )
    x, y = torch.randn(nodes, 8), torch.randint(0, 2, (nodes,))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges, **pairs), y).backward()
        optimizer.step()

    before = peak()
    step()
    start = time.process_time()
    step()
    numbers = {"seconds": time.process_time() - start, "resident": peak() - before}
    optimizer.zero_grad()
    return {**numbers, "tensors": peak_memory(step, torch.device("cpu")) / MIB}


def measure(what: str, nodes: int, degree: int, file: Path) -> dict[str, float]:
    """What a row of the table tells, in MiB and seconds."""
    edges = random_graph(nodes, degree)
    return make_distances(edges, nodes, file) if what == "distances" else train(what, edges, nodes, file)


def measure_apart(what: str, nodes: int, degree: int, file: Path) -> dict[str, float]:
    """The same in a process of its own, whose highest memory is of nothing else."""
    arguments = ["--only", what, "--nodes", str(nodes), "--degree", str(degree), "--file", str(file)]
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main(argv: list[str]) -> int:
    """Measure and print the table.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000, help="of the graph (default: 5000)")
    parser.add_argument("--degree", type=int, default=4, help="edges that meet at a node, in the mean (default: 4)")
    parser.add_argument("--quick", action="store_true", help="a graph of 600 nodes")
    parser.add_argument("--only", choices=ROWS.values(), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    options.nodes = 600 if options.quick else options.nodes
    if options.only:
        torch.set_num_threads(1)
        print(json.dumps(measure(options.only, options.nodes, options.degree, options.file)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "distances.pt"
        numbers = {
            what: measure_apart(what, options.nodes, options.degree, file) for what in ("distances", "none", "table")
        }
    print(f"{options.nodes} nodes of mean degree {options.degree}, {HEADS} heads, 2 layers\n")
    print("| | resident, MiB | tensors, MiB | s |\n|---|---|---|---|")
    for name, what in ROWS.items():
        tensors = f"{numbers[what]['tensors']:.0f}" if "tensors" in numbers[what] else "-"
        print(f"| {name} | {numbers[what]['resident']:.0f} | {tensors} | {numbers[what]['seconds']:.2f} |")
    mask = f"{HEADS * options.nodes**2 * 4 / MIB:.0f}"
    print(f"| a float32 mask ({HEADS}, N, N), one layer | {mask} | {mask} | - |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
