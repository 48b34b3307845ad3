"""Draws attention along a spectrogram."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from relbias.plot.files import plain_text
from relbias.plot.values import short_name
from relbias.plot.weights import as_array, checked, colour_bar, received, save, with_mean


@plain_text
def plot_attention_spectrogram(
    weights: Mapping[str, Any],
    spectrogram: Any,
    path: str | Path,
    *,
    sample_rate: float,
    hop_length: float,
    query: int | None = None,
    title: str = "",
) -> list[Path]:
    """The spectrogram, and below it for every layer the weights that each frame receives, a line for each head.

    Args:
        weights: for the name of each layer the weights of one sample, (H, N, M). M may be smaller than the number of
            frames T, as after a convolution with a stride: each key then stands for T / M frames.
        spectrogram: (mels, T), such as the logarithm of a mel spectrogram.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        sample_rate: of the sound, in samples per second.
        hop_length: from one frame to the next, in samples.
        query: the query whose weights are drawn; None for the mean over all queries.
        title: what stands above the panels.

    Returns:
        The two files. The CSV has the weight of every key and where it begins and ends, in seconds.

    Raises:
        ValueError: weights, spectrogram, rates or query do not fit.

    Example:
        >>> import tempfile
        >>> weights = {"blocks.0": np.full((2, 5, 5), 0.2)}
        >>> path = Path(tempfile.mkdtemp()) / "attention.png"
        >>> files = plot_attention_spectrogram(weights, np.zeros((8, 10)), path, sample_rate=16000, hop_length=160)
        >>> [file.name for file in files]
        ['attention.png', 'attention.csv']
    """
    layers, picture = checked(weights), as_array(spectrogram)
    if picture.ndim != 2 or not picture.size or not np.isfinite(picture).all():
        raise ValueError(f"spectrogram must be finite numbers of shape (mels, frames), got shape {picture.shape}")
    for word, rate in (("sample_rate", sample_rate), ("hop_length", hop_length)):
        if not 0 < rate < float("inf"):
            raise ValueError(f"{word} is {rate}, expected a positive number")
    mels, frames = picture.shape
    for name, layer in layers.items():
        if layer.shape[-1] > frames:
            raise ValueError(f"the weights of {name!r} have {layer.shape[-1]} keys for {frames} frames")
    seconds = frames * hop_length / sample_rate
    panels = {name: with_mean(received(layer, query)) for name, layer in layers.items()}
    heights = [1.6, *(0.7 + 0.17 * len(heads) for heads in panels.values())]
    figure = Figure(figsize=(8, 1.0 + sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    shown = axes[0].imshow(picture, aspect="auto", origin="lower", cmap="magma", extent=(0, seconds, 0, mels))
    axes[0].set_ylabel("mel band", fontsize=8)
    colour_bar(figure, shown, [axes[0]], "spectrogram")
    for axis, (name, heads) in zip(axes[1:], panels.items(), strict=True):
        lines = np.stack([values for _, values in heads])
        shown = axis.imshow(
            lines, aspect="auto", cmap="viridis", vmin=0, vmax=lines.max() or 1.0, interpolation="nearest",
            extent=(0, seconds, len(lines) - 0.5, -0.5),
        )  # fmt: skip
        axis.set_yticks(range(len(heads)), [head for head, _ in heads])
        axis.set_title(short_name(name), loc="left", fontsize=8)  # above: panels are lower than names are long
        colour_bar(figure, shown, [axis], "weight received")
    axes[-1].set_xlabel("time, s", fontsize=8)
    for axis in axes:
        axis.tick_params(labelsize=7)
    whose = "mean over all queries" if query is None else f"query: {query}"
    figure.suptitle("\n".join(filter(None, [title, whose])), fontsize=9)
    rows = (
        [name, head, key, key * seconds / len(values), (key + 1) * seconds / len(values), weight]
        for name, heads in panels.items()
        for head, values in heads
        for key, weight in enumerate(values)
    )
    return save(figure, path, ["layer", "head", "key", "start, s", "end, s", "weight"], rows)
