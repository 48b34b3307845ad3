"""Draws what trained models reach at other sizes than the one of their training."""

import csv
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from relbias.plot.files import plain_text, prepare

_STYLES = ("-", "--", "-.", ":")
_WIDTH, _PANEL, _LINE = 7.0, 3.4, 0.17  # inches; the figure, the height of a panel and of a line of the legend
_LETTERS = 110  # of the legend's font on the width of the figure
_APART = 1 / 13  # of the axis, between two ticks


@dataclass(frozen=True)
class Measurement:
    """One number of one trained model at one size.

    Args:
        run: the name of the run.
        encoding: the name of its line; the runs of a line differ in their seed.
        seed: of the run.
        size: at which the model was evaluated, in the unit of the axis.
        metric: what the number is, such as ``accuracy``.
        value: the number.
    """

    run: str
    encoding: str
    seed: int
    size: int
    metric: str
    value: float


def mean_and_range(rows: Sequence[Measurement], sizes: Sequence[int]) -> np.ndarray:
    """What is drawn of the runs of one line.

    Args:
        rows: of one encoding and one metric.
        sizes: X, of the axis.

    Returns:
        (3, X), the mean over the runs, the lowest and the highest value; NaN at a size that none of them has.

    Example:
        >>> rows = [Measurement("a", "t5", 0, 8, "loss", 1.0), Measurement("b", "t5", 1, 8, "loss", 2.0)]
        >>> mean_and_range(rows, [8, 16])
        array([[1.5, nan],
               [1. , nan],
               [2. , nan]])
    """
    drawn = np.full((3, len(sizes)), np.nan)
    for position, size in enumerate(sizes):
        values = [row.value for row in rows if row.size == size]
        if values:
            drawn[:, position] = np.mean(values), np.min(values), np.max(values)
    return drawn


@plain_text
def plot_extrapolation(
    rows: Sequence[Measurement],
    path: str | Path,
    *,
    training_size: int,
    label: str = "size",
    title: str = "",
) -> list[Path]:
    """A panel for every metric, a line for every encoding, with a dashed vertical line at the training size.

    The line is the mean over the runs of an encoding, the band reaches from the lowest to the highest. It is broken at
    the sizes that an encoding has no value for. The axis is logarithmic where the largest size, that of the training
    included, is 8 times the smallest or more.

    Args:
        rows: at least one, in the order of the legend.
        path: the PNG file, replaced where it exists; the CSV file beside it, with all rows, has the same stem.
        training_size: the size of the training.
        label: what the sizes are, with their unit.
        title: what stands above the panels.

    Returns:
        The two files.

    Raises:
        ValueError: there are no rows.

    Example:
        >>> import tempfile
        >>> rows = [Measurement("runs/1", "shaw", 0, size, "accuracy", 16 / size) for size in (16, 24, 32)]
        >>> path = Path(tempfile.mkdtemp()) / "extrapolation.png"
        >>> [file.name for file in plot_extrapolation(rows, path, training_size=16, label="image side, pixels")]
        ['extrapolation.png', 'extrapolation.csv']
    """
    if not rows:
        raise ValueError("there is nothing to draw: no model has a value at any size")
    path, table = prepare(path)
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measurement)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    sizes = sorted({row.size for row in rows})
    metrics = list(dict.fromkeys(row.metric for row in rows))
    figure = Figure(layout="constrained")
    panels = figure.subplots(len(metrics), 1, squeeze=False, sharex=True)[:, 0]
    handles: dict[str, Artist] = {}
    has_band = False
    for position, encoding in enumerate(dict.fromkeys(row.encoding for row in rows)):
        own = [row for row in rows if row.encoding == encoding]
        colour, style = f"C{position % 10}", _STYLES[position // 10 % len(_STYLES)]
        for metric, axis in zip(metrics, panels, strict=True):
            mean, lowest, highest = mean_and_range([row for row in own if row.metric == metric], sizes)
            axis.plot(sizes, mean, marker="o", markersize=3, color=colour, linestyle=style)
            axis.fill_between(sizes, lowest, highest, color=colour, alpha=0.2, linewidth=0)
        runs = len({row.run for row in own})
        has_band |= runs > 1
        name = f"{encoding}, {runs} runs" if runs > 1 else encoding
        handles[textwrap.fill(name, _LETTERS - 10)] = Line2D([], [], color=colour, linestyle=style)
    for metric, axis in zip(metrics, panels, strict=True):
        axis.axvline(training_size, color="black", linestyle="dashed", linewidth=1, zorder=0)
        axis.set_ylabel(metric.replace("_", " "))
        axis.grid(alpha=0.3)
    if has_band:
        handles["lowest to highest"] = Patch(color="grey", alpha=0.2, linewidth=0)
    handles[f"training: {training_size}"] = Line2D([], [], color="black", linestyle="dashed", linewidth=1)
    _scale(panels[-1], sizes, training_size)
    panels[-1].set_xlabel(label)
    columns = max(1, min(len(handles), _LETTERS // (8 + max(map(len, handles)))))
    lines = -(-sum(name.count("\n") + 1 for name in handles) // columns)
    figure.set_size_inches(_WIDTH, 0.6 + _PANEL * len(metrics) + _LINE * lines)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, fontsize=7)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=150)
    return [path, table]


def _scale(axis: Axes, sizes: Sequence[int], training_size: int) -> None:
    """The scale of the sizes, and a tick at each of them unless its label would touch the one before."""
    lowest, highest = min(sizes[0], training_size), max(sizes[-1], training_size)
    place: Callable[[float], float] = float
    if highest >= 8 * lowest:
        axis.set_xscale("log", base=2)
        axis.set_xticks([], minor=True)
        place = math.log
    ticks = [sizes[0]]
    for size in sizes[1:]:
        if place(size) - place(ticks[-1]) >= _APART * (place(highest) - place(lowest)):
            ticks.append(size)
    axis.set_xticks(ticks, [str(size) for size in ticks])
