"""Where the time of attention goes: the operators of one call, with torch's profiler, on one thread.

    python benchmarks/operators.py grid table blockwise
    python benchmarks/operators.py grid table blockwise --forward

The script is not called profile.py: torch would import it in place of Python's own module.
"""

import argparse
import sys

import torch
from torch.profiler import ProfilerActivity, profile

from relbias.bench import CASES
from relbias.bench.attentions import Attentions
from relbias.bench.candidates import DIRECTIONS
from relbias.bench.timing import quiet_process


def main(argv: list[str]) -> int:
    """Print the operators of a call by their own time.

    Args:
        argv: the arguments of the command line.

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("encoding")
    parser.add_argument("implementation", help="of relbias, or plain")
    parser.add_argument("--shape", metavar="BxHxNxD", help="another than the case's first")
    parser.add_argument("--forward", action="store_true", help="inference alone")
    parser.add_argument("--calls", type=int, default=20, help="to sum over (default: 20)")
    parser.add_argument("--rows", type=int, default=20, help="of the table (default: 20)")
    options = parser.parse_args(argv)
    case = CASES[options.case]
    b, h, n, d = map(int, options.shape.split("x")) if options.shape else case.shapes[0]
    problem = case.make(options.case, (b, h, n, d))
    inputs = Attentions(problem, options.encoding, torch.float32, torch.device("cpu"))
    plain = options.implementation == "plain"
    candidate = inputs.plain() if plain else inputs.implementation(options.implementation)
    direction = DIRECTIONS[0 if options.forward else 1]
    with quiet_process():
        for _ in range(3):
            candidate.run(direction)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for _ in range(options.calls):
                candidate.run(direction)
    print(f"{options.case} {options.encoding} {options.implementation}, {direction}, {options.calls} calls")
    print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=options.rows, max_name_column_width=60))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
