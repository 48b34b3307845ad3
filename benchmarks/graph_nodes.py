"""Memory and time of training on one large graph with an output for each node: python benchmarks/graph_nodes.py

A graph transformer (width 32, 2 layers, 4 heads) on a random graph, without any relation and with a table over hops.
All is measured on one thread, each in a process of its own. The memory of a step (forward, backward and Adam) is the
highest resident memory of the process after two steps less that before them; the time is the processor's for the second
step. Distances are made beforehand, as a data set keeps them; what making them takes is told apart. Beside it stands
what one float32 number for each head and each pair of nodes takes, as a mask of one layer would hold, without its
gradient.
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
    numbers = {"mib": peak() - before, "seconds": time.process_time() - start}
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
    seconds, before = 0.0, peak()
    for _ in range(2):
        start = time.process_time()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges, **pairs), y).backward()
        optimizer.step()
        seconds = time.process_time() - start
    return {"mib": peak() - before, "seconds": seconds}


def apart(what: str, options: argparse.Namespace, file: Path) -> dict[str, float]:
    """The same in a process of its own, whose highest memory is of nothing else."""
    sizes = ["--nodes", str(options.nodes), "--degree", str(options.degree)]
    command = [sys.executable, __file__, "--only", what, "--file", str(file), *sizes]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


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
        edges = random_graph(options.nodes, options.degree)
        if options.only == "distances":
            numbers = make_distances(edges, options.nodes, options.file)
        else:
            numbers = train(options.only, edges, options.nodes, options.file)
        print(json.dumps(numbers))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "distances.pt"
        numbers = {what: apart(what, options, file) for what in ("distances", "none", "table")}
    print(f"{options.nodes} nodes of mean degree {options.degree}, {HEADS} heads, 2 layers\n")
    print("| | MiB | s |\n|---|---|---|")
    for name, what in ROWS.items():
        print(f"| {name} | {numbers[what]['mib']:.0f} | {numbers[what]['seconds']:.2f} |")
    print(f"| a float32 mask ({HEADS}, N, N), one layer | {HEADS * options.nodes**2 * 4 / MIB:.0f} | |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
