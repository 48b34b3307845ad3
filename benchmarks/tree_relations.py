"""Times of the relations between all nodes of trees, beside networkx and an inverse matrix.

    python benchmarks/tree_relations.py
    python benchmarks/tree_relations.py --quick

Trees of 1,000 nodes: a chain, a star, a random one in which each node hangs from one of the 20 before it, and the first
nodes of the syntax tree of Python's argparse, each generation after the last. Every relation is made from the list of
parents, alone. Others make the same from the list of edges, and theirs is compared with ours first: networkx the hops
(all_pairs_shortest_path_length) and the common ancestors (tree_all_pairs_lowest_common_ancestor), torch the PageRank
from the inverse of the formula. A batch holds 32 random trees of 128 nodes.

Process time of one thread: ours all in turn in each round, of which the medians are shown, and one call of theirs. The
PageRank has rounds of its own: the call after it would also pay for memory that it has given back to the system.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
import sys
from collections.abc import Callable

import networkx
import numpy
import torch
from torch import Tensor

from relbias import relations
from relbias.bench.timing import interleaved, quiet_process, seconds
from relbias.cli.provenance import commit, machine

CPU = torch.device("cpu")

OURS: dict[str, Callable[[Tensor], object]] = {
    "tree_hops": relations.tree_hops,
    "tree_steps": relations.tree_steps,
    "step_codes": lambda parents: relations.step_codes(parents, 8),
    "ancestor_codes": lambda parents: relations.ancestor_codes(parents, 16),
    "sibling_codes": lambda parents: relations.sibling_codes(parents, 16),
    "depth_codes": lambda parents: relations.depth_codes(parents, 16),
    "neighbor_codes": relations.neighbor_codes,
    "tree_pageranks": relations.tree_pageranks,
}


def random_tree(n: int, seed: int) -> list[int]:
    """The parents of a tree whose nodes hang from one of the 20 nodes before them."""
    generator = random.Random(seed)
    return [-1, *(generator.randrange(max(0, node - 20), node) for node in range(1, n))]


def syntax_tree(n: int) -> list[int]:
    """The parents of the first n nodes of a real syntax tree."""
    parents, nodes = [-1], [ast.parse(inspect.getsource(argparse))]
    for place, node in enumerate(nodes):
        children = list(ast.iter_child_nodes(node))
        nodes.extend(children)
        parents.extend([place] * len(children))
        if len(nodes) >= n:
            break
    return parents[:n]


def trees(n: int) -> dict[str, Tensor]:
    """The parents of trees of n nodes, (n,) int64, by name."""
    return {
        "chain": torch.arange(-1, n - 1),
        "star": torch.tensor([-1] + [0] * (n - 1)),
        "random": torch.tensor(random_tree(n, 0)),
        "syntax": torch.tensor(syntax_tree(n)),
    }


def edges_of(parents: Tensor) -> list[tuple[int, int]]:
    """The edges from parents to children."""
    return [(parent, node) for node, parent in enumerate(parents.tolist()) if parent >= 0]


def hops_by_networkx(parents: Tensor) -> dict[int, dict[int, int]]:
    """The hops from each node to each."""
    return dict(networkx.all_pairs_shortest_path_length(networkx.Graph(edges_of(parents))))


def ancestors_by_networkx(parents: Tensor) -> dict[tuple[int, int], int]:
    """The lowest common ancestor of each two nodes."""
    return dict(networkx.tree_all_pairs_lowest_common_ancestor(networkx.DiGraph(edges_of(parents)), root=0))


def pageranks_by_inverse(parents: Tensor) -> Tensor:
    """The formula as it is written, (N, N) float64."""
    n = len(parents)
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    i, j = torch.tensor(edges_of(parents)).T
    adjacency[i, j] = adjacency[j, i] = 1.0
    steps = adjacency.mT / adjacency.sum(dim=-1)
    return -(0.15 * torch.linalg.inv(torch.eye(n, dtype=torch.float64) - 0.85 * steps) + 1e-9).log()


THEIRS: dict[str, Callable[[Tensor], object]] = {
    "networkx, hops": hops_by_networkx,
    "networkx, common ancestors": ancestors_by_networkx,
    "torch, inverse for the PageRank": pageranks_by_inverse,
}


def check(parents: Tensor) -> None:
    """Raise RuntimeError unless ours are theirs."""
    hops, (up, down) = relations.tree_hops(parents), relations.tree_steps(parents)
    rows, lengths = zip(*sorted(hops_by_networkx(parents).items()), strict=True)
    if hops.tolist() != [[row[node] for node in rows] for row in lengths]:
        raise RuntimeError("networkx's hops differ from ours")
    for (i, j), common in ancestors_by_networkx(parents).items():
        if int(up[i, j]) != int(hops[i, common]) or int(down[i, j]) != int(hops[j, common]):
            raise RuntimeError("networkx's common ancestors differ from ours")
    if not torch.allclose(relations.tree_pageranks(parents).double(), pageranks_by_inverse(parents), atol=1e-4):
        raise RuntimeError("the PageRank of the formula differs from ours")


def main(argv: list[str]) -> int:
    """Print the three tables.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000, help="of each tree (default: 1000)")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--quick", action="store_true", help="60 nodes, 2 rounds")
    options = parser.parse_args(argv)
    n, rounds = (60, 2) if options.quick else (options.nodes, options.rounds)
    for parents in trees(60).values():
        check(parents)
    made = trees(n)
    print(f"| ms, {n:,} nodes | {' | '.join(made)} |\n|---|{'---|' * len(made)}")
    columns = [_medians(parents, rounds) for parents in made.values()]
    for name in columns[0]:
        print(f"| {name} | {' | '.join(f'{column[name]:.1f}' for column in columns)} |")
    batch = torch.tensor([random_tree(128, seed) for seed in range(32)])
    print("\n| a batch of 32 trees of 128 nodes | ms |\n|---|---|")
    for name, taken in _medians(batch, rounds).items():
        print(f"| {name} | {taken:.1f} |")
    print(f"\n| others, the syntax tree of {n:,} nodes | ms |\n|---|---|")
    for name, way in THEIRS.items():
        with quiet_process():
            print(f"| {name} | {1000 * seconds(lambda way=way: way(made['syntax']), 1, CPU):.0f} |", flush=True)
    print(f"\n{rounds} rounds. {machine()}. Commit {commit()}.")
    return 0


def _medians(parents: Tensor, rounds: int) -> dict[str, float]:
    """The milliseconds of each of ours."""
    codes = [name for name in OURS if name != "tree_pageranks"]
    medians = {}
    for names in (codes, ["tree_pageranks"]):
        times = interleaved([lambda way=OURS[name]: way(parents) for name in names], rounds, CPU)
        medians |= {name: 1000 * float(numpy.median(taken)) for name, taken in zip(names, times, strict=True)}
    return medians


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
