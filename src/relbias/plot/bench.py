"""Draws what relations cost against the number of tokens."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from relbias.bench import Row
from relbias.bench.candidates import DIRECTIONS

_MEASURES = (("time_ratio", "time / plain attention"), ("memory_ratio", "peak memory / plain attention"))


def plot_bench(rows: Sequence[Row], path: Path, title: str = "") -> list[Path]:
    """Ratios of time and memory to plain attention against N, on logarithmic axes, a panel for each direction.

    A colour stands for an implementation, a marker for what it computes: level, case, dtype and encoding.

    Args:
        rows: from :func:`relbias.bench.benchmark`.
        path: the PNG file, replaced where it exists; the CSV file beside it, with all rows, has the same stem.
        title: what stands above the panels.

    Returns:
        The two files.

    Example:
        >>> import tempfile
        >>> from relbias.bench import benchmark
        >>> rows = list(benchmark("sequence", (1, 2, 16, 8), "alibi", ["folded"], rounds=1, peers=False))
        >>> [file.name for file in plot_bench(rows, Path(tempfile.mkdtemp()) / "bench.png")]
        ['bench.png', 'bench.csv']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    table = path.with_suffix(".csv")
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    drawn = [row for row in rows if row.time_ratio is not None and row.implementation != "plain"]
    colours = {name: f"C{i % 10}" for i, name in enumerate(dict.fromkeys(row.implementation for row in drawn))}
    markers = {subject: "osD^v<>PX*"[i % 10] for i, subject in enumerate(dict.fromkeys(map(_subject, drawn)))}
    tokens = sorted({row.tokens for row in rows})
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(len(_MEASURES), len(DIRECTIONS), squeeze=False, sharex=True, sharey="row")
    for (measure, label), line in zip(_MEASURES, panels, strict=True):
        for direction, axis in zip(DIRECTIONS, line, strict=True):
            series: dict[tuple[str, str], list[tuple[int, float]]] = {}
            for row in drawn:
                if row.direction == direction:
                    points = series.setdefault((row.implementation, _subject(row)), [])
                    points.append((row.tokens, getattr(row, measure)))
            for (name, subject), points in series.items():
                axis.plot(*zip(*sorted(points), strict=True), color=colours[name], marker=markers[subject])
            axis.axhline(1.0, color="black", linestyle="dashed")
            axis.set(xscale="log", yscale="log", title=direction, ylabel=label)
            axis.set_xlabel("N, tokens")
            axis.set_xticks(tokens, [str(n) for n in tokens], minor=False)
            axis.set_xticks([], minor=True)
            axis.grid(which="both", alpha=0.3)
    lines = [Line2D([], [], color="black", linestyle="dashed", label="plain")]
    lines += [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    lines += [Line2D([], [], color="gray", marker=m, linestyle="", label=subject) for subject, m in markers.items()]
    figure.legend(handles=lines, loc="outside right upper", fontsize=7)
    figure.suptitle(title, fontsize=8)
    figure.savefig(path, dpi=150)
    return [path, table]


def _subject(row: Row) -> str:
    return f"{row.encoding}, {row.case} {row.level}, {row.dtype}"
