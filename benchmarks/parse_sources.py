"""Time to parse a folder of source files, and to relate the tokens of its functions.

    python benchmarks/parse_sources.py
    python benchmarks/parse_sources.py --without test tests idle_test idlelib lib2to3 turtledemo
    python benchmarks/parse_sources.py --path FOLDER --languages python javascript
    python benchmarks/parse_sources.py --quick

By default the folder is that of the running Python's standard library with all its tests, without packages that were
installed into it. Its files are parsed without a cache, into an empty one, and from it; the three must give the same.
Then every function of at most 512 tokens, methods and functions in functions too, is cut out of its file and related:
between its tokens the seven relations of the tree that are codes or distances, and the PageRank, in padded batches of
32 functions with trees of about one size; and the edges of the program, function after function.

Process time of one thread, each row once: a row takes seconds to a minute. The last adds up what a first run does: to
parse without a cache, to cut, and to relate.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from relbias import relations
from relbias.bench.timing import quiet_process, seconds
from relbias.cli.provenance import commit, machine
from relbias.data.source.edges import program_edges
from relbias.data.source.folder import SUFFIXES, SourceFolder, parse_folder
from relbias.data.source.parsed import ParsedSource
from relbias.relations import TREE_NEIGHBORS, between_tokens

CPU = torch.device("cpu")
WITHOUT = ("__pycache__", "dist-packages", "site-packages")
"""Folders in that of the standard library with what is not part of it."""
BATCH = 32

TREES: tuple[tuple[Callable[[Tensor], Tensor], int], ...] = (
    (relations.tree_hops, -1),
    (lambda parents: relations.tree_steps(parents)[0], -1),
    (lambda parents: relations.step_codes(parents, 8), 81),
    (lambda parents: relations.ancestor_codes(parents, 16), 33),
    (lambda parents: relations.sibling_codes(parents, 16), 33),
    (lambda parents: relations.depth_codes(parents, 16), 33),
    (relations.neighbor_codes, TREE_NEIGHBORS.index("none")),
)
"""The relations, and what each gives for a pair with a token that has no node."""


def functions_of(folder: SourceFolder, most: int) -> list[ParsedSource]:
    """The functions of at most so many tokens, cut out of their files."""
    return [
        source.part(function.first, function.last)
        for source in folder.sources.values()
        for function in source.functions
        if function.last - function.first <= most
    ]


def batches(functions: list[ParsedSource]) -> list[tuple[Tensor, Tensor]]:
    """The parents and the node of each token, padded, of functions with trees of about one size."""
    ordered = sorted(functions, key=lambda function: len(function.parents))
    made = []
    for first in range(0, len(ordered), BATCH):
        some = ordered[first : first + BATCH]
        parents, nodes = ([getattr(function, name) for function in some] for name in ("parents", "node_of_token"))
        made.append(tuple(pad_sequence(rows, batch_first=True, padding_value=-1) for rows in (parents, nodes)))
    return made


def relate(made: list[tuple[Tensor, Tensor]]) -> None:
    """All relations of trees that are codes or distances."""
    for parents, nodes in made:
        for relation, unrelated in TREES:
            between_tokens(relation(parents), nodes, unrelated)


def rank(made: list[tuple[Tensor, Tensor]]) -> None:
    """The PageRank."""
    for parents, nodes in made:
        between_tokens(relations.tree_pageranks(parents), nodes, torch.inf)


def join(functions: list[ParsedSource]) -> None:
    """The edges of the programs."""
    for function in functions:
        program_edges(function)


def check(one: SourceFolder, other: SourceFolder) -> None:
    """Raise RuntimeError unless two ways to read a folder gave the same."""
    if str(one).splitlines()[1:] != str(other).splitlines()[1:] or one.sources.keys() != other.sources.keys():
        raise RuntimeError("the cache gave other files or other problems")
    for name, source in one.sources.items():
        same = other.sources[name]
        if source.tokens != same.tokens or not source.parents.equal(same.parents):
            raise RuntimeError(f"the cache gave another tree of {name}")


def main(argv: list[str]) -> int:
    """Print the table.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, help="a folder (default: the standard library)")
    parser.add_argument(
        "--languages", nargs="+", choices=sorted(set(SUFFIXES.values())), default=["python"], help="(default: python)"
    )
    parser.add_argument("--without", nargs="+", default=[], help="names of folders that are left out")
    parser.add_argument("--max-tokens", type=int, default=512, help="of a function to be related (default: 512)")
    parser.add_argument("--quick", action="store_true", help="the standard library's json alone")
    options = parser.parse_args(argv)
    library = Path(sysconfig.get_path("stdlib"))
    path = options.path or (library / "json" if options.quick else library)
    without = (*options.without, *(() if options.path else WITHOUT))
    found: dict[str, SourceFolder] = {}

    def read(name: str, cache: str | None) -> None:
        found[name] = parse_folder(path, tuple(options.languages), cache, without=without)

    def timed(run: Callable[[], object]) -> float:
        with quiet_process():
            return seconds(run, 1, CPU)

    taken = {}
    with tempfile.TemporaryDirectory() as cache:
        for name, folder in (("parsed", None), ("parsed into a cache", cache), ("read from the cache", cache)):
            taken[name] = timed(lambda name=name, folder=folder: read(name, folder))
            check(found["parsed"], found[name])
    folder = found["parsed"]
    functions: list[ParsedSource] = []
    count = f"functions of at most {options.max_tokens} tokens"
    taken[f"{count}, cut out"] = timed(lambda: functions.extend(functions_of(folder, options.max_tokens)))
    made = batches(functions)
    taken[f"{len(TREES)} relations of their trees"] = timed(lambda: relate(made))
    taken["PageRank"] = timed(lambda: rank(made))
    taken["edges of the programs"] = timed(lambda: join(functions))
    taken["all, at first"] = sum(time for name, time in taken.items() if "cache" not in name)
    tokens = sum(len(source.tokens) for source in folder.sources.values())
    files = len(folder.sources)
    print(f"| {files:,} files, {tokens:,} tokens, {len(functions):,} {count} | s | ms of a file |\n|---|---|---|")
    for name, time in taken.items():
        print(f"| {name} | {time:.1f} | {1000 * time / max(1, files):.2f} |")
    left_out = len(folder.problems.keys() - folder.sources.keys())
    print(f"\n{len(folder.problems)} files with problems, {left_out} of them left out. {machine()}. Commit {commit()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
