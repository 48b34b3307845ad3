"""What relative time costs in a Conformer: a training step of a layer against torchaudio's, which has no positions.

    python benchmarks/conformer_layer.py
    python benchmarks/conformer_layer.py --quick

The first table has the attention alone, ours against the nn.MultiheadAttention of torchaudio's layer, called as there;
the second has the whole layer, with its networks of 4 times the width and a convolution of 31 frames. The sizes are
those of the small, medium and large Conformer (https://arxiv.org/abs/2005.08100). A step is forward and backward of one
clip of 1,000 frames, on one thread of the CPU, in float32, with gradients for the input and all parameters.

Process time, all in turn in each round, in another order each time. A ratio is taken within a round; shown are the
median and, in brackets, the quartiles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy
import torch
from torch import nn
from torchaudio.models.conformer import ConformerLayer

import relbias as rb
from relbias.bench.timing import interleaved
from relbias.cli.provenance import commit, machine

SIZES = ((144, 4), (256, 4), (512, 8))
KERNEL, NETWORK = 31, 4
ENCODINGS: dict[str, Any] = {
    "none": "none",
    "rope": "rope",
    "alibi": "alibi",
    "t5": "t5",
    "shaw": "shaw",
    "transformer_xl, clamp_len 64": partial(rb.encodings.TransformerXL, clamp_len=64),
    "transformer_xl": "transformer_xl",
}
TORCHAUDIO = "torchaudio, no positions"


def _step(call: Callable[[torch.Tensor], torch.Tensor], layer: nn.Module, x: torch.Tensor) -> Callable[[], object]:
    x = x.requires_grad_()

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        call(x).sum().backward()

    return step


def attentions(dim: int, heads: int, frames: int) -> dict[str, Callable[[], object]]:
    """A training step of each attention, by name."""
    torch.manual_seed(0)
    x = torch.randn(frames, 1, dim)  # torchaudio's order of axes within the model
    theirs = nn.MultiheadAttention(dim, heads)
    steps = {TORCHAUDIO: _step(lambda x: theirs(x, x, x, need_weights=False)[0], theirs, x)}
    for name, encoding in ENCODINGS.items():
        layer = rb.RelativeAttention(dim, heads, encoding)
        steps[name] = _step(layer, layer, x.detach().transpose(0, 1))
    return steps


def layers(dim: int, heads: int, frames: int) -> dict[str, Callable[[], object]]:
    """A training step of each whole layer, by name."""
    torch.manual_seed(0)
    x = torch.randn(frames, 1, dim)
    theirs = ConformerLayer(dim, NETWORK * dim, heads, KERNEL)
    steps = {TORCHAUDIO: _step(lambda x: theirs(x, None), theirs, x)}
    for name, encoding in ENCODINGS.items():
        block = rb.models.ConformerBlock(dim, heads, encoding, ffn_dim=NETWORK * dim, kernel_size=KERNEL)
        steps[name] = _step(lambda x, block=block: block(x)[0], block, x.detach().transpose(0, 1))
    return steps


def ratio(values: Sequence[float], unit: Sequence[float]) -> str:
    """The median and the quartiles of ratios within each round."""
    low, middle, high = numpy.quantile(numpy.array(values) / numpy.array(unit), [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def table(title: str, columns: dict[str, dict[str, Callable[[], object]]], rounds: int) -> list[str]:
    """The lines of one table: a row for each encoding, a column for each size."""
    cells: dict[str, list[str]] = {}
    for steps in columns.values():
        times = dict(zip(steps, interleaved(list(steps.values()), rounds, torch.device("cpu")), strict=True))
        for name, samples in times.items():
            milliseconds = f"{1000 * numpy.median(samples):.0f} ms"
            cell = milliseconds if name == TORCHAUDIO else ratio(samples, times[TORCHAUDIO])
            cells.setdefault(name, []).append(cell)
    lines = [f"| {title} | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    return [*lines, *(f"| {name} | " + " | ".join(row) + " |" for name, row in cells.items())]


def main(argv: list[str]) -> int:
    """Print the two tables.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1000, help="of the clip (default: 1000)")
    parser.add_argument("--rounds", type=int, default=9, help="(default: 9)")
    parser.add_argument("--quick", action="store_true", help="20 frames, 2 rounds, the smallest size")
    options = parser.parse_args(argv)
    frames, rounds, sizes = (20, 2, SIZES[:1]) if options.quick else (options.frames, options.rounds, SIZES)
    for title, make in (("attention", attentions), ("whole layer", layers)):
        columns = {f"width {dim}, {heads} heads": make(dim, heads, frames) for dim, heads in sizes}
        print("\n".join(table(f"{title}, {frames} frames", columns, rounds)), end="\n\n", flush=True)
    print(f"{rounds} rounds. {machine()}. Commit {commit()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
