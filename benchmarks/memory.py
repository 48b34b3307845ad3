"""The memory of `blockwise`, forward and backward with trained terms: by length and by the size of a block.

    python benchmarks/memory.py
    python benchmarks/memory.py --encodings t5,shaw,deberta --lengths 2048,4096,8192

Counted as in `relbias bench`: the highest point of what torch's allocator hands out, above what lay there before the
call. Beside it plain attention without any relation, and the size of one N x M map for every head, which a materialised
bias needs at least twice in training. B = 1, H = 8, D = 64, float32, on the CPU.
"""

import argparse
import sys
from unittest import mock

import torch

from relbias.attention import blockwise
from relbias.bench import CASES
from relbias.bench.attentions import Attentions
from relbias.bench.candidates import DIRECTIONS, Candidate
from relbias.bench.memory import peak_memory

HEADS, SIZE = 8, 64
BLOCKS = (2**20, 2**19, 2**18)
"""Logits in a block: the default, half of it, and a quarter."""
CPU, MIB = torch.device("cpu"), 2**20


def mebibytes(candidate: Candidate) -> float:
    """The peak of one call, forward and backward."""
    return peak_memory(lambda: candidate.run(DIRECTIONS[1]), CPU) / MIB


def row(encoding: str, length: int) -> list[float]:
    """Of one length, in MiB: plain attention, `blockwise` for each size of a block, one map for every head."""
    problem = CASES["long"].make("long", (1, HEADS, length, SIZE))
    inputs = Attentions(problem, encoding, torch.float32, CPU)
    numbers = [mebibytes(inputs.plain())]
    for size in BLOCKS:
        with mock.patch.object(blockwise, "_LOGITS_PER_BLOCK", size):
            numbers.append(mebibytes(inputs.implementation("blockwise")))
    return [*numbers, HEADS * length**2 * 4 / MIB]


def main(argv: list[str]) -> int:
    """Print the table.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encodings", default="t5", help="names, separated by commas (default: t5)")
    parser.add_argument("--lengths", default="2048,4096,8192", help="N = M (default: 2048,4096,8192)")
    options = parser.parse_args(argv)
    blocks = " | ".join(f"{size // 1024} Ki logits in a block" for size in BLOCKS)
    print(f"| encoding | N | plain | {blocks} | a map for every head |")
    print("|---" * (4 + len(BLOCKS)) + "|")
    for encoding in options.encodings.split(","):
        for length in map(int, options.lengths.split(",")):
            numbers = " | ".join(f"{number:.1f}" for number in row(encoding, length))
            print(f"| {encoding} | {length} | {numbers} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
