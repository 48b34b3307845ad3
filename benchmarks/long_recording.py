"""The memory and the time that a Conformer takes for long recordings: whole, with a window, and as a stream.

    python benchmarks/long_recording.py
    python benchmarks/long_recording.py --minutes 1,10 --depth 2

A recording is 100 frames of 80 mel features a second, of which convolutions make 25; the Conformer is a small one, of
width 144 with 4 heads and transformer_xl. "whole": each frame attends to all. "window": to 64 frames on either side.
"stream": chunk by chunk of 16 frames, with 64 before them, features made anew for each chunk. "training": forward and
backward with the window. Beside them torchaudio's Conformer, which has no positions, after the same convolutions.

Memory is counted as in `relbias bench`: the highest point of what torch's allocator hands out, above what lay there
before the call. On the CPU, in float32, one thread; time is that of the process, for the whole recording, once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torchaudio.models import Conformer

import relbias as rb
from relbias.bench.memory import peak_memory
from relbias.bench.timing import quiet_process
from relbias.cli.provenance import commit, machine

MELS, DIM, HEADS, CHANNELS, KERNEL = 80, 144, 4, 32, 31
CHUNK, CONTEXT, FACTOR, RATE = 16, 64, 4, 100
CPU, MIB = torch.device("cpu"), 2**20


def model(depth: int, **options: object) -> rb.models.SpeechConformer:
    """A small Conformer with outputs, in evaluation mode."""
    torch.manual_seed(0)
    return rb.models.SpeechConformer(
        "transformer_xl", num_outputs=32, num_mels=MELS, channels=CHANNELS, dim=DIM, depth=depth, num_heads=HEADS,
        kernel_size=KERNEL, factor=FACTOR, **options,
    ).eval()  # fmt: skip


def runs(minutes: float, depth: int) -> dict[str, Callable[[], object]]:
    """What is done with a recording, by name."""
    frames = round(60 * RATE * minutes)
    sound, lengths = torch.randn(1, frames, MELS), torch.tensor([frames])
    whole, near = model(depth), model(depth, window=(CONTEXT, CONTEXT))
    chunked = model(depth, chunk=CHUNK, left_context=CONTEXT)
    theirs = Conformer(DIM, HEADS, 4 * DIM, depth, KERNEL).eval()
    piece = CHUNK * FACTOR

    def without_gradients(call: Callable[[], object]) -> Callable[[], object]:
        return torch.no_grad()(call)

    def stream() -> None:
        past, made = chunked.new_stream(), torch.Generator().manual_seed(0)
        for first in range(0, frames, piece):
            chunked.stream(torch.randn(1, min(piece, frames - first), MELS, generator=made), past)

    def train() -> None:
        near.zero_grad()
        near(sound, lengths)[0].sum().backward()

    return {
        "torchaudio, no positions": without_gradients(lambda: theirs(*whole.subsampling(sound, lengths))),
        "whole": without_gradients(lambda: whole(sound, lengths)),
        f"window ({CONTEXT}, {CONTEXT})": without_gradients(lambda: near(sound, lengths)),
        f"stream, chunks of {CHUNK} after {CONTEXT}": without_gradients(stream),
        f"training, window ({CONTEXT}, {CONTEXT})": train,
    }


def measured(run: Callable[[], object]) -> str:
    """The memory of a call and its time."""
    with quiet_process():
        begin = time.process_time()
        run()
        seconds = time.process_time() - begin
        memory = peak_memory(run, CPU) / MIB
    return f"{memory:.1f} MiB, {seconds:.1f} s"


def main(argv: list[str]) -> int:
    """Print the table.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", default="1,5,10", help="of recordings, separated by commas (default: 1,5,10)")
    parser.add_argument("--depth", type=int, default=2, help="blocks (default: 2)")
    options = parser.parse_args(argv)
    cells: dict[str, list[str]] = {}
    minutes = options.minutes.split(",")
    for length in minutes:
        for name, run in runs(float(length), options.depth).items():
            cells.setdefault(name, []).append(measured(run))
    print(f"| {options.depth} blocks | " + " | ".join(f"{length} min" for length in minutes) + " |")
    print("|---" * (1 + len(minutes)) + "|")
    for name, row in cells.items():
        print(f"| {name} | " + " | ".join(row) + " |")
    print(f"\n{machine()}. Commit {commit()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
