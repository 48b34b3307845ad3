"""Draws attention between the tokens of sequences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from relbias.plot.files import plain_text
from relbias.plot.values import short_name
from relbias.plot.weights import MAX_LABELS, checked, colour_bar, grid_of_axes, save, with_mean


@plain_text
def plot_attention_sequence(
    weights: Mapping[str, Any],
    path: str | Path,
    *,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    title: str = "",
) -> list[Path]:
    """For every layer a row with the weights over queries and keys for each head, and their mean.

    Args:
        weights: for the name of each layer the weights of one sample, (H, N, M).
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        tokens: the M keys as words; up to 32 are written at the axes, otherwise their places are.
        query_tokens: the N queries as words; by default the last N of `tokens`, which they are in self-attention.
        title: what stands above the panels.

    Returns:
        The two files.

    Raises:
        ValueError: the weights do not fit, or there are not as many words as tokens.

    Example:
        >>> import tempfile
        >>> weights = {"blocks.0": np.full((2, 3, 3), 1 / 3)}
        >>> path = Path(tempfile.mkdtemp()) / "attention.png"
        >>> [file.name for file in plot_attention_sequence(weights, path, tokens=["a", "b", "c"])]
        ['attention.png', 'attention.csv']
    """
    layers = checked(weights)
    for name, layer in layers.items():
        n, m = layer.shape[1:]
        if tokens is not None and len(tokens) != m:
            raise ValueError(f"there are {len(tokens)} tokens, and the weights of {name!r} have {m} keys")
        if query_tokens is not None and len(query_tokens) != n:
            raise ValueError(
                f"there are {len(query_tokens)} query_tokens, and the weights of {name!r} have {n} queries"
            )
        if query_tokens is None and tokens is not None and n > m:
            raise ValueError(f"the weights of {name!r} have {n} queries for {m} keys; give query_tokens as well")
    panels = {name: with_mean(layer) for name, layer in layers.items()}
    n, m = (max(layer.shape[axis] for layer in layers.values()) for axis in (1, 2))
    side = [max(1.9, 0.5 + 0.11 * size) if size <= MAX_LABELS and tokens is not None else 2.2 for size in (m, n)]
    figure, axes = grid_of_axes(len(layers), max(map(len, panels.values())), (side[0], side[1] + 0.3))
    for row, (name, heads) in zip(axes, panels.items(), strict=True):
        highest = max(values.max() for _, values in heads) or 1.0
        for axis, (head, values) in zip(row, heads, strict=False):
            axis.set_axis_on()
            shown = axis.imshow(values, cmap="viridis", vmin=0, vmax=highest, interpolation="nearest")
            axis.set_title(head, fontsize=8)
            axis.tick_params(labelsize=6)
            queries = (
                query_tokens if query_tokens is not None or tokens is None else tokens[len(tokens) - len(values) :]
            )
            _label(axis, "x", tokens)
            _label(axis, "y", queries)
            axis.set_xlabel("key", fontsize=7)
        row[0].set_ylabel(f"{short_name(name)}\nquery", fontsize=8)
        colour_bar(figure, shown, list(row[: len(heads)]))
    figure.suptitle(title, fontsize=9)
    rows = (
        [name, head, query, key, weight]
        for name, heads in panels.items()
        for head, values in heads
        for (query, key), weight in np.ndenumerate(values)
    )
    return save(figure, path, ["layer", "head", "query", "key", "weight"], rows)


def _label(axis: Axes, side: str, tokens: Sequence[str] | None) -> None:
    """Writes the tokens at one side where they can be read, their places otherwise."""
    line = axis.xaxis if side == "x" else axis.yaxis
    if tokens is None or len(tokens) > MAX_LABELS:
        line.set_major_locator(MaxNLocator(integer=True))
        return
    line.set_ticks(range(len(tokens)), [str(token) for token in tokens])
    if side == "x":
        axis.tick_params(axis="x", rotation=90)
