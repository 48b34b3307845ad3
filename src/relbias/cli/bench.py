"""bench: what relations cost, beside plain attention."""

import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relbias._extras import extra
from relbias._nearest import nearest
from relbias.cli.parser import Parser

if TYPE_CHECKING:
    from relbias.bench import Row

HEAD = ("encoding", "implementation", "direction", "time, ms", "time ratio", "memory, MiB", "memory ratio", "error")
DESCRIPTION = """Measures time and peak memory of attention with relations, as ratios to plain
scaled_dot_product_attention on the same q, k and v in the same rounds: one thread, process time on CPU, events on a
GPU; the median over the rounds (and the quartiles); the memory that torch's allocator hands out above what lay there
before; the largest error against the reference in float64, over the largest number of its tensor. Forward is inference;
backward gives the gradients of q, k, v and the encoding. Prints a table and writes bench.csv and bench.png."""


def main(argv: Sequence[str]) -> int:
    """Measures and writes the table, the CSV file and the picture.

    Args:
        argv: the arguments of ``relbias bench``.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: an argument does not fit; nothing has been measured then.
        MissingExtraError: matplotlib is not installed.
    """
    options = _parser().parse_args(argv)
    with extra("plot"):
        import matplotlib  # noqa: F401  (asked for before anything is measured)
    if options.write:
        import relbias.cli.atomic  # noqa: F401  (needs the train extra)
    from relbias.bench import benchmark
    from relbias.cli.provenance import commit, machine
    from relbias.cli.table import insert
    from relbias.plot.bench import plot_bench

    measurements = _measurements(options)
    path = options.output / "bench.png"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write {error.filename}: {error.strerror}; give another folder with -o") from None
    rows: list[Row] = []
    lines: list[str] = []

    def show(*text: str) -> None:
        lines.extend(text)
        print(*text, sep="\n", flush=True)

    heading = None
    for arguments in measurements:
        if heading != _heading(arguments):
            heading = _heading(arguments)
            show(*[""] * bool(lines), heading, "", _line(HEAD), "|" + "---|" * len(HEAD))
        for row in benchmark(**arguments, rounds=options.rounds, peers=not options.no_peers, device=options.device):
            rows.append(row)
            show(_line(cells(row)))
    command = shlex.join(["relbias", "bench", *argv])
    files = plot_bench(rows, path, "\n".join([*textwrap.wrap(command, 120), machine()]))
    print("\n".join(str(file) for file in files))
    if options.write:
        name, _, anchor = options.write.partition("#")
        foot = f"Machine: {machine()}. Commit: {commit()}. {options.rounds} rounds. Command:"
        insert(Path(name), anchor or "bench", "\n".join([*lines, "", foot, "", f"    {command}"]), "bench")
        print(f"the table is in {name}")
    return 0


def _parser() -> Parser:
    parser = Parser(prog="relbias bench", description=DESCRIPTION)

    def add(option: str, text: str, default: str | None = None) -> None:
        parser.add_argument(option, metavar="A,B", type=_words, default=default and _words(default), help=text)

    add(
        "--cases",
        "sequence | long (a sequence of 4096) | grid (of patches) | graph (a batch of small ones); default: sequence, "
        "grid and graph, with --encodings the first that takes each, with --lengths or --shapes sequence",
    )
    add("--encodings", "default: a few that suit each case")
    add("--lengths", "numbers of tokens N in place of those of each case")
    add("--shapes", "BxHxNxD in place of those of each case, such as 2x8x1024x64")
    add("--implementations", "default: folded,blockwise", "folded,blockwise")
    add(
        "--levels", "attention (on q, k and v) | layer (with projections, beside those of other libraries)", "attention"
    )
    add("--dtypes", "default: float32", "float32")
    parser.add_argument("--device", default="cpu", help="cpu | cuda")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (default: 7)")
    parser.add_argument("--no-peers", action="store_true", help="measure nothing but this library and plain attention")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", default=Path("bench"), help="default: ./bench")
    parser.add_argument(
        "--write", metavar="FILE#NAME", help="also put the table between the markers of NAME in a Markdown file"
    )
    return parser


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _known(option: str, words: Sequence[str], names: Any) -> None:
    for word in words:
        if word not in names:
            raise ValueError(f"--{option} has no {word!r}; {nearest(word, names)}")


def _measurements(options: Any) -> list[dict[str, Any]]:
    """The arguments of each call of `benchmark`; all are tried before the first one is measured."""
    import torch

    from relbias.attention import list_implementations
    from relbias.bench import CASES, LEVELS

    _known("cases", options.cases or [], CASES)
    _known("implementations", options.implementations, list_implementations())
    _known("levels", options.levels, LEVELS)
    _known("dtypes", options.dtypes, ("float32", "bfloat16", "float16", "float64"))
    _known("device", [options.device], ("cpu", "cuda"))
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device is cuda, and torch sees no GPU here; use --device cpu")
    if options.rounds < 1:
        raise ValueError(f"--rounds is {options.rounds}, expected at least 1")
    if options.lengths and options.shapes:
        raise ValueError("--lengths and --shapes both say how many tokens there are; give one of them")
    subjects = _subjects(options)
    return [
        {
            "case": case,
            "shape": shape,
            "encoding": encoding,
            "implementations": options.implementations,
            "level": level,
            "dtype": getattr(torch, dtype),
        }
        for case, shape in dict.fromkeys((case, shape) for case, shape, _ in subjects)
        for level in options.levels
        for dtype in options.dtypes
        for encoding in [encoding for *place, encoding in subjects if place == [case, shape]]
    ]


def _subjects(options: Any) -> list[tuple[str, tuple[int, int, int, int], str]]:
    """Case, shape and encoding of each measurement, tried once."""
    from relbias.bench import CASES

    sizes_given = options.lengths or options.shapes
    cases = options.cases or (["sequence"] if sizes_given else ["sequence", "grid", "graph"])
    subjects = []
    for encoding in options.encodings or [None]:
        reasons: list[ValueError] = []
        for name in cases:
            try:
                found = [
                    (name, shape, each)
                    for shape in _shapes(CASES[name].shapes, options)
                    for each in ([encoding] if encoding else CASES[name].encodings)
                    if _try(options.levels, name, shape, each)
                ]
            except ValueError as error:
                if options.cases or sizes_given or encoding is None:
                    raise
                reasons.append(error)
                continue
            subjects += found
            if encoding and not options.cases:
                break  # the first case that takes it
        if len(reasons) == len(cases):
            raise reasons[0]
    return subjects


def _try(levels: Sequence[str], case: str, shape: tuple[int, int, int, int], encoding: str) -> bool:
    """Builds what will be measured, so that a refusal comes before the first measurement."""
    import torch

    from relbias.bench import CASES, LEVELS

    for level in levels:
        LEVELS[level](CASES[case].make(case, shape), encoding, torch.float32, torch.device("cpu"))
    return True


def _shapes(default: Sequence[tuple[int, int, int, int]], options: Any) -> Sequence[tuple[int, int, int, int]]:
    if options.shapes:
        return [_shape(text) for text in options.shapes]
    if options.lengths:
        batch, heads, _, size = default[0]
        return [(batch, heads, _length(text), size) for text in options.lengths]
    return default


def _length(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--lengths has {text!r}, expected numbers of tokens such as 256,1024")
    return int(text)


def _shape(text: str) -> tuple[int, int, int, int]:
    sizes = [int(word) for word in text.split("x") if word.isdecimal() and int(word) > 0]
    if len(sizes) != 4 or text.count("x") != 3:
        raise ValueError(f"--shapes has {text!r}, expected BxHxNxD such as 2x8x1024x64")
    return sizes[0], sizes[1], sizes[2], sizes[3]


def _heading(arguments: dict[str, Any]) -> str:
    dtype = str(arguments["dtype"]).removeprefix("torch.")
    return f"{arguments['case']}, {arguments['level']}, (B, H, N, D) = {arguments['shape']}, {dtype}"


def _line(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def cells(row: "Row") -> list[str]:
    """A row of the table.

    Args:
        row: of :func:`relbias.bench.benchmark`.

    Returns:
        The text below each column of `HEAD`; one that was refused has the reason in place of its numbers.
    """
    start = [row.encoding, row.implementation, row.direction]
    if row.time_ms is None:
        return [*start, "-", "-", "-", "-", row.note]
    return [
        *start,
        _number(row.time_ms),
        f"{row.time_ratio:.2f} ({row.time_ratio_low:.2f} to {row.time_ratio_high:.2f})",
        _number(row.memory_mib),
        f"{row.memory_ratio:.2f}",
        "" if row.error is None else f"{row.error:.0e}",
    ]


def _number(value: float | None) -> str:
    """Three digits or more, without an exponent."""
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"
