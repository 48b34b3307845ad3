"""Draws losses and accuracies of several runs over the steps."""

import csv
from pathlib import Path

from matplotlib.figure import Figure

from relbias.plot.files import plain_text, prepare

PANELS = ("loss", "accuracy")
_COLUMNS = ("epoch", "step")


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The curves in a metrics.csv.

    Args:
        path: the file in a run folder.

    Returns:
        For each metric its (step, value) pairs, in order.

    Raises:
        ValueError: there is no such file, it is damaged, or it holds no curves.
    """
    if not path.is_file():
        raise ValueError(f"there is no {path}; `relbias fit` writes it when training begins")
    curves: dict[str, list[tuple[int, float]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for name, value in row.items():
                    if name not in _COLUMNS and value:
                        curves.setdefault(name, []).append((int(row["step"]), float(value)))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a metrics.csv of a training: {error}") from None
    if not curves:
        raise ValueError(f"there is nothing to draw in {path}; did the training take its first steps?")
    return curves


@plain_text
def plot_training(runs: dict[str, dict[str, list[tuple[int, float]]]], path: str | Path) -> list[Path]:
    """A panel for the losses and one for the accuracies; a colour for every run.

    Args:
        runs: the curves of each run by its name, from :func:`read_metrics`.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.

    Returns:
        The two files.

    Example:
        >>> import tempfile
        >>> runs = {"shaw": {"train/loss": [(0, 2.3), (10, 1.9)]}}
        >>> [file.name for file in plot_training(runs, Path(tempfile.mkdtemp()) / "training.png")]
        ['training.png', 'training.csv']
    """
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    path, table = prepare(path)
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "metric", "step", "value"])
        for position, (run, curves) in enumerate(runs.items()):
            for metric, points in curves.items():
                writer.writerows([run, metric, step, value] for step, value in points)
                panel = metric.rpartition("/")[2]
                if panel in PANELS:
                    style = ":" if metric.startswith("train/") else "-"
                    steps, values = zip(*points, strict=True)
                    axes[PANELS.index(panel)].plot(
                        steps,
                        values,
                        style,
                        marker="." if len(steps) == 1 else None,
                        color=f"C{position % 10}",
                        label=f"{run} {metric}",
                    )
    for panel, axis in zip(PANELS, axes, strict=True):
        axis.set_xlabel("optimizer steps")
        axis.set_ylabel(panel)
        if axis.lines:
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=150)
    return [path, table]
