"""Draws attention on a graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
from matplotlib.collections import LineCollection

from relbias.plot.files import plain_text
from relbias.plot.values import short_name
from relbias.plot.weights import MAX_LABELS, checked, colour_bar, grid_of_axes, label_row, received, save, with_mean

_SPRING_NODES = 500  # from here on networkx's spring layout needs scipy
_WIDEST = 5.0  # points


@plain_text
def plot_attention_graph(
    weights: Mapping[str, Any],
    edges: Any,
    path: str | Path,
    *,
    query: int | None = None,
    labels: Sequence[str] | None = None,
    title: str = "",
) -> list[Path]:
    """For every layer a row with the graph for each head, and their mean.

    The colour of a node is the weight that it receives, the width of an edge the mean of the weights between its two
    nodes, in both directions. Attention between nodes that no edge joins shows in the colours alone.

    Args:
        weights: for the name of each layer the weights of one graph, (H, N, N), without prefix tokens and padding.
        edges: (2, E) integers from 0 to N - 1; both directions of an edge are drawn as one line, loops not at all.
        path: the PNG file, replaced where it exists; the CSV file beside it has the same stem.
        query: the node, circled, whose weights colour the others; None for the mean over all queries.
        labels: what is written on the N nodes; their places by default. Nothing is on more than 32 nodes.
        title: what stands above the panels.

    Returns:
        The two files. The CSV has a row for every node (second is empty) and for every line.

    Raises:
        ValueError: weights, edges, labels or query do not fit.

    Example:
        >>> import tempfile
        >>> weights = {"blocks.0": np.full((2, 3, 3), 1 / 3)}
        >>> path = Path(tempfile.mkdtemp()) / "attention.png"
        >>> [file.name for file in plot_attention_graph(weights, np.array([[0, 1], [1, 2]]), path)]
        ['attention.png', 'attention.csv']
    """
    layers = checked(weights)
    n = next(iter(layers.values())).shape[-1]
    for name, layer in layers.items():
        if layer.shape[1:] != (n, n):
            raise ValueError(f"the weights of {name!r} have shape {layer.shape}, expected (H, {n}, {n})")
    pairs = _pairs(edges, n)
    if labels is not None and len(labels) != n:
        raise ValueError(f"there are {len(labels)} labels for {n} nodes")
    words = [str(node) for node in range(n)] if labels is None else [str(label) for label in labels]
    places = _layout(n, pairs)
    nodes = {name: with_mean(received(layer, query)) for name, layer in layers.items()}
    lines = {name: with_mean(_between(layer, pairs)) for name, layer in layers.items()}
    figure, axes = grid_of_axes(len(layers), max(map(len, nodes.values())), (2.4, 2.5))
    for row, name in zip(axes, layers, strict=True):
        highest = max(values.max() for _, values in nodes[name]) or 1.0
        widest = max((values.max() for _, values in lines[name] if values.size), default=0.0)
        for axis, (head, values), (_, widths) in zip(row, nodes[name], lines[name], strict=False):
            axis.add_collection(
                LineCollection(list(places[pairs]), linewidths=_WIDEST * widths / (widest or 1.0), colors="grey")
            )
            shown = axis.scatter(
                *places.T, c=values, s=110 if n <= MAX_LABELS else 15, cmap="viridis", vmin=0, vmax=highest, zorder=2,
                edgecolors=["red" if node == query else "white" for node in range(n)], linewidths=1.5,
            )  # fmt: skip
            for node in range(n) if n <= MAX_LABELS else ():
                colour = "black" if values[node] > 0.6 * highest else "white"
                axis.annotate(words[node], places[node], ha="center", va="center", fontsize=6, color=colour)
            axis.set_title(head, fontsize=8)
            axis.set_aspect("equal")
            axis.margins(0.12)
        label_row(row[0], f"{short_name(name)}\nwidest edge: {widest:.2g}")
        colour_bar(figure, shown, list(row[: len(nodes[name])]), "weight received")
    whose = "mean over all queries" if query is None else f"query: node {query}"
    figure.suptitle("\n".join(filter(None, [title, f"{whose}; edge width: weight between its nodes"])), fontsize=9)
    rows = [
        [name, head, "node", node, "", weight]
        for name in layers
        for head, values in nodes[name]
        for node, weight in enumerate(values)
    ] + [
        [name, head, "edge", first, second, weight]
        for name in layers
        for head, values in lines[name]
        for (first, second), weight in zip(pairs.tolist(), values, strict=True)
    ]
    return save(figure, path, ["layer", "head", "part", "first", "second", "weight"], rows)


def _pairs(edges: Any, n: int) -> np.ndarray:
    """The lines to draw, (E', 2), the smaller node first."""
    array = np.asarray(edges)
    if array.ndim != 2 or array.shape[0] != 2 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"edges must be (2, E) integers, got {array.dtype} of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < n:
        raise ValueError(
            f"edges join the nodes {array.min()} to {array.max()}, and the weights have nodes 0 to {n - 1}"
        )
    pairs = np.sort(array.astype(np.int64).T, axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def _between(layer: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(H, E'): the mean of both directions."""
    first, second = pairs.T
    return (layer[:, first, second] + layer[:, second, first]) / 2


def _layout(n: int, pairs: np.ndarray) -> np.ndarray:
    """(N, 2): always the same for the same graph."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(pairs.tolist())
    places = networkx.spring_layout(graph, seed=0) if n < _SPRING_NODES else networkx.circular_layout(graph)
    return np.array([places[node] for node in range(n)])
