"""Draws bias over offsets, or over queries and keys."""

import csv
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from relbias.plot.files import plain_text, prepare
from relbias.plot.values import DESCRIPTIONS, Layer
from relbias.relations import Grid


@plain_text
def plot_bias(layers: list[Layer], path: str | Path, title: str = "") -> list[Path]:
    """A picture for every layer and head: over (dy, dx) on a grid, over query and key on a sequence.

    Args:
        layers: from :func:`relbias.plot.layers`.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        title: what stands above the terms.

    Returns:
        The two files.

    Example:
        >>> import tempfile
        >>> layer = Layer("blocks.0", "b", Grid(2, 2), np.zeros((1, 4, 4)))
        >>> [file.name for file in plot_bias([layer], Path(tempfile.mkdtemp()) / "bias.png")]
        ['bias.png', 'bias.csv']
    """
    images = [layer.offsets() if isinstance(layer.relation, Grid) else layer.values for layer in layers]
    columns = max(len(image) for image in images)
    across, down = (len(layers), 1) if columns == 1 else (columns, len(layers))
    figure = Figure(figsize=(1.2 + 2.6 * across, 1.2 + 2.4 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    axes = axes.T if columns == 1 else axes  # without heads to show, the layers stand side by side
    for row, (layer, image) in enumerate(zip(layers, images, strict=True)):
        on_grid = isinstance(layer.relation, Grid)
        height, width = image.shape[1:]
        extent = (-width / 2, width / 2, height / 2, -height / 2) if on_grid else None
        low, high = np.nanmin(image), np.nanmax(image)
        for head, axis in enumerate(axes[row]):
            if head >= len(image):
                axis.set_axis_off()
                continue
            picture = axis.imshow(image[head], vmin=low, vmax=high, extent=extent, cmap="viridis")
            heads = f"head {head}" if len(image) > 1 else "all heads"
            axis.set_title("\n".join(filter(None, [layer.title if head == 0 else "", heads])), fontsize=8)
            axis.tick_params(labelsize=7)
            for line in (axis.xaxis, axis.yaxis):
                line.set_major_locator(MaxNLocator(integer=True))
        shown = list(axes[row][: len(image)])
        bar = figure.colorbar(picture, ax=shown, fraction=0.05 / len(shown), pad=0.03, shrink=0.8)
        bar.set_label(DESCRIPTIONS[layer.term], fontsize=7)
        bar.ax.tick_params(labelsize=7)
        axes[row][0].set_ylabel("dy" if on_grid else "query", fontsize=7)
        axes[row][0].set_xlabel("dx" if on_grid else "key", fontsize=7)
    where = "(dy, dx) = query - key, in patches" if any(isinstance(layer.relation, Grid) for layer in layers) else ""
    figure.suptitle("\n".join(filter(None, [title, where])), fontsize=9)
    path, table = prepare(path)
    figure.savefig(path, dpi=150)
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["layer", "term", "head", "dy or query", "dx or key", "value"])
        for layer, image in zip(layers, images, strict=True):
            shift = (image.shape[1] // 2, image.shape[2] // 2) if isinstance(layer.relation, Grid) else (0, 0)
            for (head, first, second), value in np.ndenumerate(image):
                writer.writerow([layer.name, layer.term, head, first - shift[0], second - shift[1], value])
    return [path, table]
