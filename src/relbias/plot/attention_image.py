"""Draws attention over an image."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from relbias.plot.files import plain_text
from relbias.plot.values import short_name
from relbias.plot.weights import as_array, checked, colour_bar, grid_of_axes, label_row, received, save, with_mean


@plain_text
def plot_attention_image(
    weights: Mapping[str, Any],
    image: Any,
    grid: tuple[int, int],
    path: str | Path,
    *,
    prefix_tokens: int = 0,
    query: int | None = None,
    title: str = "",
) -> list[Path]:
    """For every layer a row: the image, the weights over it for each head, and their mean.

    The tokens are P prefix tokens, then the patches row by row, as in :class:`relbias.relations.Grid`. A patch's weight
    colours all its pixels; what falls on prefix tokens is no part of the picture, and each panel says how much is left.

    Args:
        weights: for the name of each layer the weights of one sample, (H, P + height width, P + height width).
        image: (1 or 3, Y, X), any range; without contrast it is grey. Three channels are shown in colour in the first
            panel, in grey below the weights.
        grid: (height, width), in patches.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        prefix_tokens: P, class token and registers.
        query: the token whose weights are drawn. None for the first prefix token, which is the class token where there
            is one, and without prefix tokens for the mean over all queries.
        title: what stands above the panels.

    Returns:
        The two files. The CSV has the weight of every key; y and x are empty for prefix tokens.

    Raises:
        ValueError: weights, image, grid or query do not fit.

    Example:
        >>> import tempfile
        >>> weights = {"blocks.0": np.full((2, 5, 5), 0.2)}
        >>> path = Path(tempfile.mkdtemp()) / "attention.png"
        >>> files = plot_attention_image(weights, np.zeros((1, 8, 8)), (2, 2), path, prefix_tokens=1)
        >>> [file.name for file in files]
        ['attention.png', 'attention.csv']
    """
    layers, (height, width), p = checked(weights), grid, prefix_tokens
    if height < 1 or width < 1 or p < 0:
        raise ValueError(f"grid is {grid} and prefix_tokens {p}, expected at least (1, 1) and 0")
    tokens = p + height * width
    for name, layer in layers.items():
        if layer.shape[1:] != (tokens, tokens):
            expected = f"a {height}x{width} grid with {p} prefix tokens has (H, {tokens}, {tokens})"
            raise ValueError(f"the weights of {name!r} have shape {layer.shape}; {expected}")
    picture = _pixels(image)
    grey = picture if picture.ndim == 2 else picture.mean(axis=-1)  # below the weights, whose colours it leaves alone
    chosen = 0 if query is None and p else query
    panels = {name: with_mean(received(layer, chosen)) for name, layer in layers.items()}
    figure, axes = grid_of_axes(len(layers), 1 + max(map(len, panels.values())), (1.7, 1.3 + 0.6 * height / width))
    extent = (0, width, height, 0)
    for row, (name, heads) in zip(axes, panels.items(), strict=True):
        row[0].imshow(picture, cmap="gray", extent=extent, interpolation="nearest")
        row[0].set_title("image", fontsize=8)
        label_row(row[0], short_name(name))
        highest = max(values[p:].max() for _, values in heads) or 1.0
        for axis, (head, values) in zip(row[1:], heads, strict=False):
            axis.imshow(grey, cmap="gray", vmin=0, vmax=1, extent=extent, interpolation="nearest")
            shown = axis.imshow(
                values[p:].reshape(height, width), cmap="viridis", alpha=0.65, vmin=0, vmax=highest,
                extent=extent, interpolation="nearest",
            )  # fmt: skip
            left = f"\n{values[p:].sum():.0%} on patches" if p else ""
            axis.set_title(f"{head}{left}", fontsize=8)
            if chosen is not None and chosen >= p:
                y, x = divmod(chosen - p, width)
                axis.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor="red", linewidth=1.5))
        colour_bar(figure, shown, list(row[: 1 + len(heads)]))
    whose = "mean over all queries"
    if chosen is not None:
        place = divmod(chosen - p, width)
        whose = f"query: prefix token {chosen}" if chosen < p else f"query: patch (y, x) = {place}"
    figure.suptitle("\n".join(filter(None, [title, whose])), fontsize=9)
    rows = (
        [name, head, key, *(divmod(key - p, width) if key >= p else ("", "")), weight]
        for name, heads in panels.items()
        for head, values in heads
        for key, weight in enumerate(values)
    )
    return save(figure, path, ["layer", "head", "key", "y", "x", "weight"], rows)


def _pixels(image: Any) -> np.ndarray:
    """(Y, X) or (Y, X, 3), from 0 to 1."""
    array = as_array(image)
    if array.ndim != 3 or array.shape[0] not in (1, 3) or not array.size:
        raise ValueError(f"image must have shape (1 or 3, height, width), got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("image holds infinite numbers or NaN")
    low, high = array.min(), array.max()
    scaled = (array - low) / (high - low) if high > low else np.full_like(array, 0.5)
    return scaled[0] if len(scaled) == 1 else scaled.transpose(1, 2, 0)
