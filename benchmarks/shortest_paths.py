"""Times and memory of the distances between all nodes of graphs, beside scipy and networkx.

    python benchmarks/shortest_paths.py
    python benchmarks/shortest_paths.py --quick

Molecules: 2,000 random graphs of about 23 nodes, trees of at most four neighbours with some rings. Scipy
(csgraph.dijkstra, unweighted) and networkx (all_pairs_shortest_path_length) get one graph after the other and build
their own graph from a list of edges; so do we, or all at once. Large: one random graph of 5,000 nodes and mean degree
4, with and without a limit of 5 hops (scipy then leaves open whether there is a longer path).

Process time of one thread, all in turn in each round; a ratio is taken within a round, and the table shows the median
and, in brackets, the quartiles. The peak of memory is that of a process of its own, on Linux: the highest resident
memory (VmHWM; ru_maxrss would count the process that started it) less what was resident before the call.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import networkx
import numpy
import torch
from scipy import sparse
from torch import Tensor

from relbias.bench.timing import interleaved
from relbias.cli.provenance import commit, machine
from relbias.relations.path_lengths import shortest_paths

LIMIT = 5


def molecule(generator: random.Random) -> tuple[int, list[tuple[int, int]]]:
    """A random graph like a molecule: its number of nodes and its edges, each in both directions."""
    n = min(37, max(9, round(generator.gauss(23, 4.5))))
    degrees = [0] * n
    edges = []

    def join(i: int, j: int) -> None:
        degrees[i] += 1
        degrees[j] += 1
        edges.extend([(i, j), (j, i)])

    for j in range(1, n):
        join(generator.choice([i for i in range(max(0, j - 4), j) if degrees[i] < 3] or [j - 1]), j)
    for _ in range(generator.randint(1, 3)):  # a ring
        i = generator.randrange(n - 5)
        if degrees[i] < 4 and degrees[i + 5] < 4 and (i, i + 5) not in edges:
            join(i, i + 5)
    return n, edges


def molecules(count: int) -> tuple[list[int], list[Tensor]]:
    """The numbers of nodes of random molecules, and their edges, (2, E) int64 each."""
    generator = random.Random(0)
    made = [molecule(generator) for _ in range(count)]
    return [n for n, _ in made], [torch.tensor(edges).T.contiguous() for _, edges in made]


def large(n: int) -> Tensor:
    """The edges of a random graph of mean degree 4, (2, 4 n) int64."""
    edges = torch.randint(n, (2, 2 * n), generator=torch.Generator().manual_seed(0))
    return torch.cat((edges, edges.flip(0)), 1)


def by_scipy(edges: Tensor, n: int, limit: float = numpy.inf) -> numpy.ndarray:
    """(n, n) float64, inf where there is no path or it is longer than the limit."""
    i, j = edges.numpy()
    matrix = sparse.csr_matrix((numpy.ones(len(i), dtype=numpy.int8), (i, j)), shape=(n, n))
    return sparse.csgraph.dijkstra(matrix, unweighted=True, limit=limit)


def as_integers(distances: numpy.ndarray) -> numpy.ndarray:
    """What ours gives, with -1 where there is no path."""
    distances[numpy.isinf(distances)] = -1
    return distances.astype(numpy.int16)


def by_networkx(edges: Tensor, n: int) -> dict[int, dict[int, int]]:
    """The distances from each node to those it reaches."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges.T.tolist())
    return dict(networkx.all_pairs_shortest_path_length(graph))


def of_molecules(count: int) -> dict[str, Callable[[], object]]:
    """The ways to count the hops of random molecules, by name; ours all at once first."""
    sizes, edges = molecules(count)
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    index = torch.cat([e + start for e, start in zip(edges, starts, strict=False)], 1)
    batch = torch.arange(count).repeat_interleave(torch.tensor(sizes))
    graphs = list(zip(edges, sizes, strict=True))
    found = shortest_paths(index, len(batch), batch)
    for distances, (e, n) in zip(found, graphs, strict=True):
        expected = numpy.nan_to_num(by_scipy(e, n), posinf=-1)
        if not numpy.array_equal(distances[:n, :n].numpy(), expected):
            raise RuntimeError("scipy's distances differ from ours")

    def each(run: Callable[[Tensor, int], object]) -> Callable[[], object]:
        return lambda: [run(e, n) for e, n in graphs]

    return {
        "relbias, all at once": lambda: shortest_paths(index, len(batch), batch),
        "relbias, graph after graph": each(shortest_paths),
        "scipy": each(by_scipy),
        "networkx": each(by_networkx),
    }


def of_large(n: int) -> dict[str, Callable[[], object]]:
    """The ways to count the hops of a large graph, by name."""
    edges = large(n)
    return {
        "relbias": lambda: shortest_paths(edges, n),
        "scipy": lambda: by_scipy(edges, n),
        "scipy, made int16": lambda: as_integers(by_scipy(edges, n)),
        f"relbias, at most {LIMIT} hops": lambda: shortest_paths(edges, n, max_distance=LIMIT),
        f"scipy, at most {LIMIT} hops": lambda: by_scipy(edges, n, LIMIT),
    }


def peak(name: str, n: int) -> float:
    """By how many MiB the resident memory rises in a process of its own that counts the hops of a large graph."""
    command = [sys.executable, str(Path(__file__)), "--peak", name, "--nodes", str(n)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def rise(name: str, n: int) -> float:
    """What `peak` starts. A small graph first, so that code is loaded before."""
    of_large(100)[name]()
    run = of_large(n)[name]
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets how high it was while importing
    resident = _status("VmRSS")
    kept = run()
    highest = _status("VmHWM")
    del kept
    return (highest - resident) / 1024


def _status(name: str) -> int:
    """A number of KiB that Linux tells of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def ratios(times: Iterable[float], unit: Iterable[float]) -> str:
    """How many times as long as the unit, within each round: the median and the quartiles."""
    low, middle, high = numpy.quantile(numpy.array(times) / numpy.array(unit), [0.25, 0.5, 0.75])
    return f"{middle:.1f} ({low:.1f}-{high:.1f})"


def main(argv: list[str]) -> int:
    """Print the two tables.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--nodes", type=int, default=5000, help="of the large graph (default: 5000)")
    parser.add_argument("--rounds", type=int, default=7, help="(default: 7)")
    parser.add_argument("--quick", action="store_true", help="20 molecules, 300 nodes, 2 rounds")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.peak:
        print(rise(options.peak, options.nodes))
        return 0
    count, n, rounds = (20, 300, 2) if options.quick else (options.molecules, options.nodes, options.rounds)
    cpu = torch.device("cpu")
    runs = of_molecules(count)
    times = dict(zip(runs, interleaved(list(runs.values()), rounds, cpu), strict=True))
    first = next(iter(times.values()))
    print(f"| {count:,} molecules | ms | times as long as the first |\n|---|---|---|")
    for name, taken in times.items():
        print(f"| {name} | {1000 * numpy.median(taken):.1f} | {ratios(taken, first)} |")
    runs = of_large(n)
    times = dict(zip(runs, interleaved(list(runs.values()), rounds, cpu), strict=True))
    print(f"\n| a graph of {n:,} nodes | ms | times as long as relbias | peak MiB |\n|---|---|---|---|")
    for name, taken in times.items():
        if name.startswith("relbias"):
            unit = taken  # of the rows below
        print(
            f"| {name} | {1000 * numpy.median(taken):.0f} | {ratios(taken, unit)} | {peak(name, n):.0f} |", flush=True
        )
    print(f"\n{rounds} rounds. {machine()}. Commit {commit()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
