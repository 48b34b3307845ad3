"""Draws bias against distance."""

import csv
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from relbias.plot.files import plain_text, prepare
from relbias.plot.values import DESCRIPTIONS, Layer
from relbias.relations import Grid


def by_distance(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """The values of a layer by distance.

    Args:
        layer: one term of one encoding.

    Returns:
        The distances (X,) and the values (H or 1, X). On a sequence the distance is the offset j - i in positions; on a
        grid it is the Euclidean length of (dy, dx) in patches, and the value the mean over the offsets of that length.

    Example:
        >>> distances, values = by_distance(Layer("", "b", Grid(2, 2), np.zeros((1, 4, 4))))
        >>> distances.round(2).tolist(), values.shape
        ([0.0, 1.0, 1.41], (1, 3))
    """
    offsets = layer.offsets()
    if not isinstance(layer.relation, Grid):
        n = layer.values.shape[1]
        return np.arange(1 - n, n), offsets
    dy = np.arange(offsets.shape[1]) - offsets.shape[1] // 2
    dx = np.arange(offsets.shape[2]) - offsets.shape[2] // 2
    squares, inverse = np.unique(dy[:, None] ** 2 + dx**2, return_inverse=True)
    counts = np.bincount(inverse.ravel())
    return np.sqrt(squares), np.stack([np.bincount(inverse.ravel(), weights=head.ravel()) / counts for head in offsets])


@plain_text
def plot_curve(layers: list[Layer], path: str | Path, title: str = "") -> list[Path]:
    """A panel for every layer, a line for every head.

    Args:
        layers: from :func:`relbias.plot.layers`.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        title: what stands above the panels.

    Returns:
        The two files.

    Example:
        >>> import tempfile
        >>> layer = Layer("blocks.0", "b", Grid(2, 2), np.zeros((1, 4, 4)))
        >>> [file.name for file in plot_curve([layer], Path(tempfile.mkdtemp()) / "curve.png")]
        ['curve.png', 'curve.csv']
    """
    figure = Figure(figsize=(6, 0.6 + 2.4 * len(layers)), layout="constrained")
    axes = figure.subplots(len(layers), 1, squeeze=False)[:, 0]
    path, table = prepare(path)
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["layer", "term", "head", "distance", "value"])
        for layer, axis in zip(layers, axes, strict=True):
            distances, values = by_distance(layer)
            for head, line in enumerate(values):
                axis.plot(distances, line, marker=".", label=f"head {head}" if len(values) > 1 else "all heads")
                writer.writerows([layer.name, layer.term, head, d, v] for d, v in zip(distances, line, strict=True))
            unit = "distance, patches" if isinstance(layer.relation, Grid) else "offset (key - query), positions"
            axis.set_xlabel(unit, fontsize=8)
            axis.set_ylabel(DESCRIPTIONS[layer.term], fontsize=8)
            axis.set_title(layer.title, fontsize=8)
            axis.legend(fontsize=6)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=150)
    return [path, table]
