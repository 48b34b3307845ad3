"""Attention weights as the figures take them: checked, reduced over queries, with a mean over the heads."""

import csv
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from torch import Tensor

from relbias.plot.files import prepare

MAX_LABELS = 32  # tokens; more labels than these cannot be read


def as_array(given: Any) -> np.ndarray:
    """A copy of what is to be drawn, as float64.

    Args:
        given: an array, lists, or a tensor of any dtype and device, with gradients or without.

    Example:
        >>> import torch
        >>> as_array(torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True))
        array([[1., 1.]])
    """
    if isinstance(given, Tensor):
        given = given.detach().cpu().double().numpy()
    return np.array(given, dtype=np.float64)


def checked(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The weights of every layer as float64, a row without any weight as zeros.

    Args:
        weights: for the name of each layer the weights of one sample, (H, N, M), or (N, M) for one head. A row of NaN
            is what a softmax gives where every key is masked; it counts as a row of zeros.

    Returns:
        For each name (H, N, M) float64.

    Raises:
        ValueError: no layers, another shape, or values that are negative or not finite.

    Example:
        >>> checked({"blocks.0": [[0.5, 0.5], [np.nan, np.nan]]})
        {'blocks.0': array([[[0.5, 0.5],
                [0. , 0. ]]])}
    """
    if not isinstance(weights, Mapping) or not weights:
        what = "an empty mapping" if isinstance(weights, Mapping) else f"a {type(weights).__name__}"
        raise ValueError(
            f"weights must map the names of layers to arrays (H, N, M), got {what}; those of the first sample "
            "in the list of rb.capture are {record.name: record.weights[0] for record in captured}"
        )
    layers = {}
    for name, given in weights.items():
        array = as_array(given)
        if array.ndim not in (2, 3) or not array.size:
            hint = "; take one sample of the batch" if array.ndim == 4 else ""
            raise ValueError(f"the weights of {name!r} must have shape (H, N, M) or (N, M), got {array.shape}{hint}")
        array[np.isnan(array).all(axis=-1)] = 0.0
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"the weights of {name!r} hold negative or infinite numbers, or NaN in a part of a row")
        layers[name] = array[None] if array.ndim == 2 else array
    return layers


def received(weights: np.ndarray, query: int | None = None) -> np.ndarray:
    """The weight that each key receives.

    Args:
        weights: (H, N, M).
        query: the query whose weights they are; None for the mean over the queries that attend to anything.

    Returns:
        (H, M); zeros where no query attends to anything.

    Raises:
        ValueError: there is no such query.

    Example:
        >>> received(np.array([[[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]])).tolist()
        [[0.75, 0.25]]
    """
    if query is None:
        attending = weights.any(axis=-1).sum(axis=-1, keepdims=True)
        return weights.sum(axis=1) / np.maximum(attending, 1)
    n = weights.shape[1]
    if not isinstance(query, Integral) or isinstance(query, bool) or not 0 <= query < n:
        raise ValueError(f"query is {query!r}, expected the place of one of the {n} queries, 0 to {n - 1}")
    return weights[:, query]


def with_mean(values: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The values (H, ...) of each head by its name, then their mean over the heads where there are several.

    Example:
        >>> [(name, value.tolist()) for name, value in with_mean(np.array([[1.0], [2.0]]))]
        [('head 0', [1.0]), ('head 1', [2.0]), ('mean', [1.5])]
    """
    panels = [(f"head {head}", value) for head, value in enumerate(values)]
    return [*panels, ("mean", values.mean(axis=0))] if len(panels) > 1 else panels


def grid_of_axes(rows: int, columns: int, panel: tuple[float, float]) -> tuple[Figure, np.ndarray]:
    """A figure with a row for every layer and room for its colour bar.

    Args:
        rows: how many layers.
        columns: how many panels at most.
        panel: the width and height of a panel, in inches.

    Returns:
        The figure and its axes, (rows, columns), all of them empty and without a frame.
    """
    figure = Figure(figsize=(1.4 + panel[0] * columns, 0.8 + panel[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    return figure, axes


def label_row(axis: Axes, text: str) -> None:
    """Writes upright beside a panel, also where its axes are off."""
    axis.annotate(
        text, (0, 0.5), xytext=(-4, 0), xycoords="axes fraction", textcoords="offset points",
        rotation=90, ha="right", va="center", fontsize=8,
    )  # fmt: skip


def colour_bar(figure: Figure, picture: ScalarMappable, axes: list[Axes], label: str = "attention weight") -> None:
    """A described colour bar to the right of some panels."""
    bar = figure.colorbar(picture, ax=axes, fraction=0.06 / len(axes), pad=0.02, shrink=0.85)
    bar.set_label(label, fontsize=7)
    bar.ax.tick_params(labelsize=7)


def save(figure: Figure, path: str | Path, header: list[str], rows: Iterable[list[Any]]) -> list[Path]:
    """Writes a figure and its numbers.

    Args:
        figure: what is drawn.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        header: the names of the columns.
        rows: the numbers.

    Returns:
        The two files.
    """
    path, table = prepare(path)
    figure.savefig(path, dpi=150)
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return [path, table]
