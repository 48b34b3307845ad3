"""Checks every implementation on a GPU against float64, then times them at N = 197, 1024 and 4096. Under eight minutes.

    python benchmarks/gpu.py                        checks and times on the GPU
    python benchmarks/gpu.py --device cpu --quick   the same steps at toy sizes, to try the script itself

It prints a line for each check, then tables of ratios to plain attention as `relbias bench` does, and writes bench.csv
and bench.png. What does not fit in --seconds is named and left out: the checks come first. The exit code is 1 where a
check fails, an error beyond its limit or an exception.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from relbias.attention.functional import IMPLEMENTATIONS
from relbias.bench import CASES, Row, benchmark
from relbias.bench.attentions import Attentions
from relbias.bench.candidates import DIRECTIONS
from relbias.cli.bench import HEAD, cells
from relbias.cli.provenance import commit, machine
from relbias.plot.bench import plot_bench

LIMITS = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""The largest error against float64 that passes, over the largest number of the tensor. A gradient of a table is a sum
over all pairs of a code; and a GPU may multiply float32 with 10 bits where it is told to."""
CHECKED = (
    ("sequence", "none"),
    ("sequence", "t5"),
    ("grid", "table"),
    ("graph", "table"),
    ("sequence", "rope"),
    ("sequence", "shaw"),
    ("sequence", "deberta"),
    ("sequence", "transformer_xl"),
    ("sequence", "wavlm"),
    ("graph", "grpe"),
)
"""Every term: b over offsets, a grid and given pairs, rotation, K, K and Q, u and w, g, V."""


@dataclass(frozen=True)
class Check:
    """One implementation with one encoding, whose output and gradients are compared with float64.

    Args:
        name: the implementation's.
        case: a name of `CASES`.
        encoding: its name.
        dtype: of q, k, v and parameters.
        tokens: N.
    """

    name: str
    case: str
    encoding: str
    dtype: torch.dtype
    tokens: int

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.name}, {self.encoding} over {self.case}, {dtype}, N = {self.tokens}"

    def error(self, device: str) -> tuple[float | None, str]:
        """The largest relative error of the output and all gradients, or None and why it is refused."""
        shape = (2, 4, self.tokens, 64)
        group = Attentions(CASES[self.case].make(self.case, shape), self.encoding, self.dtype, torch.device(device))
        candidate = group.implementation(self.name)
        # On CPU flex computes forward alone.
        directions = DIRECTIONS if device == "cpu" and IMPLEMENTATIONS[self.name].compiles else DIRECTIONS[1:]
        for direction in reversed(directions):
            refused = candidate.refused(direction)
            if not refused:
                return candidate.error(direction), ""
        return None, refused or ""


def checks(quick: bool) -> list[Check]:
    """What is checked, that which compiles last and in bfloat16 once."""
    plain = [name for name, implementation in IMPLEMENTATIONS.items() if not implementation.compiles]
    found = []
    for name in [*plain, *(name for name in IMPLEMENTATIONS if name not in plain)]:
        for dtype in LIMITS:
            for case, encoding in CHECKED[:2] if quick else CHECKED:
                if name in plain or dtype == torch.float32 or encoding == "t5":
                    tokens = 23 if case == "graph" else 17 if quick else 197
                    found.append(Check(name, case, encoding, dtype, tokens))
    return found


def run_checks(device: str, quick: bool, end: float) -> bool:
    """Makes the checks until the time is up; whether none failed."""
    passed = True
    for check in checks(quick):
        if time.monotonic() > end:
            print(f"LEFT OUT {check}", flush=True)
            continue
        limit = LIMITS[check.dtype]
        try:
            error, refused = check.error(device)
        except Exception as fault:  # a kernel that does not compile must not hide the other checks
            passed = False
            print(f"FAILED   {check}: {_line(fault)}", flush=True)
            continue
        if error is None:
            print(f"refused  {check}: {refused}", flush=True)
            continue
        good = error <= limit  # False for NaN
        passed = passed and good
        print(f"{'passed  ' if good else 'FAILED  '} {check}: {error:.1e}, limit {limit:.0e}", flush=True)
    return passed


def run_times(device: str, quick: bool, end: float) -> tuple[list[Row], bool]:
    """Measures until the time is up; the rows, and whether nothing failed."""
    rows: list[Row] = []
    passed = True
    print(f"\n| N | dtype | {' | '.join(HEAD)} |\n|{'---|' * (len(HEAD) + 2)}")
    for tokens in (17,) if quick else (197, 1024, 4096):
        for encoding in ("t5",) if quick else ("t5", "rope", "shaw"):
            for dtype in LIMITS:
                subject = f"{encoding}, N = {tokens}, {str(dtype).removeprefix('torch.')}"
                if time.monotonic() > end:
                    print(f"LEFT OUT {subject}", flush=True)
                    continue
                shape = (2, 2, tokens, 16) if quick else (8 if tokens < 4096 else 2, 8, tokens, 64)
                names = [
                    name
                    for name, implementation in IMPLEMENTATIONS.items()
                    # The reference holds all logits several times; each kernel that is compiled takes seconds.
                    if (name != "reference" or tokens < 4096)
                    and (not implementation.compiles or (encoding == "t5" and dtype == torch.bfloat16))
                ]
                rounds = 2 if quick else 7
                try:
                    for row in benchmark("sequence", shape, encoding, names, dtype=dtype, device=device, rounds=rounds):
                        rows.append(row)
                        print(f"| {tokens} | {row.dtype} | {' | '.join(cells(row))} |", flush=True)
                except Exception as fault:
                    passed = False
                    print(f"FAILED   {subject}: {_line(fault)}", flush=True)
    return rows, passed


def _line(fault: Exception) -> str:
    return f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Checks, then times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    parser.add_argument("--seconds", type=float, default=420.0, help="after which nothing more begins (default: 420)")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-gpu"), metavar="DIR")
    options = parser.parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; to try the script: --device cpu --quick")
    start = time.monotonic()
    print(f"{machine()}, commit {commit()}", flush=True)
    checked = run_checks(options.device, options.quick, start + 0.6 * options.seconds)
    rows, timed = run_times(options.device, options.quick, start + options.seconds)
    if rows:
        for file in plot_bench(rows, options.output / "bench.png", machine()):
            print(file)
    print(f"{'nothing failed' if checked and timed else 'SOMETHING FAILED'}; {time.monotonic() - start:.0f} s")
    return 0 if checked and timed else 1


if __name__ == "__main__":
    sys.exit(main())
