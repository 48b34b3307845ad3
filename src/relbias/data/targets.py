"""What graphs are to predict: the kind of problem, read off the targets y, and checks of the data."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

Kind: TypeAlias = Literal["regression", "multiclass", "multilabel"]
KINDS = ("regression", "multiclass", "multilabel")


def kind_of(y: Tensor) -> Kind:
    """The kind of problem that targets are of.

    Args:
        y: (R,) or (R, T), of all samples; NaN is a label that is missing.

    Returns:
        "multilabel" for floats that are all 0, 1 or NaN and for integers (R, T) that are all 0 or 1; "regression" for
        other floats; "multiclass" for other integers (R,) or (R, 1).

    Raises:
        ValueError: integers in several columns that are not all 0 or 1.

    Example:
        >>> kind_of(torch.tensor([0, 1, 1])), kind_of(torch.tensor([[0.5], [1.0]])), kind_of(torch.tensor([[0], [1]]))
        ('multiclass', 'regression', 'multilabel')
    """
    known = y[~y.isnan()]
    is_binary = bool(((known == 0) | (known == 1)).all())
    if y.is_floating_point():
        return "multilabel" if is_binary else "regression"
    if y.ndim == 2 and is_binary:
        return "multilabel"
    if y.ndim == 1 or y.shape[1] == 1:
        return "multiclass"
    raise ValueError(
        f"y has {y.shape[1]} columns of integers from {y.min()} to {y.max()}: give kind, one of {', '.join(KINDS)}"
    )


def as_targets(y: Tensor, kind: Kind) -> Tensor:
    """Targets in the form that a loss takes.

    Args:
        y: (R,) or (R, T).
        kind: of the problem.

    Returns:
        (R,) int64 classes for "multiclass", else (R, T) floating, NaN where missing.

    Raises:
        ValueError: several columns of classes, or a class that is not an integer.

    Example:
        >>> as_targets(torch.tensor([0, 1]), "multilabel")
        tensor([[0.],
                [1.]])
    """
    if kind != "multiclass":
        y = y if y.is_floating_point() else y.float()
        return y[:, None] if y.ndim == 1 else y
    if y.ndim == 2 and y.shape[1] != 1:
        raise ValueError(f"y has {y.shape[1]} columns, and kind multiclass has one; give kind multilabel or regression")
    classes = y.flatten()
    if classes.is_floating_point() and not bool((classes == classes.round()).all()):
        raise ValueError("y has values that are no integers, and kind is multiclass; give kind regression")
    return classes.long()


def gather(graphs: Sequence[Any], name: str) -> tuple[Tensor, Tensor] | None:
    """An attribute of all graphs, as they come out of the data set, also one that its `transform` makes or changes.

    Args:
        graphs: PyG's Data, or a data set of them.
        name: of the attribute.

    Returns:
        Its rows, those of one graph after those of another, and their number in each graph, (G,); None where no graph
        has it.

    Raises:
        ValueError: some graphs have it and others do not, or with another number of columns.
    """
    slices, stored = getattr(graphs, "slices", None), getattr(graphs, "_data", None)
    is_whole = getattr(graphs, "_indices", None) is None and getattr(graphs, "transform", None) is None
    if stored is not None and slices is not None and is_whole:
        if name not in slices or not isinstance(stored[name], Tensor):
            return None
        return stored[name], torch.as_tensor(slices[name]).diff()
    values = [getattr(graphs[position], name, None) for position in range(len(graphs))]
    if all(value is None for value in values):
        return None
    absent = next((position for position, value in enumerate(values) if value is None), None)
    if absent is not None:
        raise ValueError(f"graph {absent} has no {name}, and others have one; add it, or leave the graph out")
    known = [tensor[None] if tensor.ndim == 0 else tensor for tensor in map(torch.as_tensor, values)]
    for position, value in enumerate(known):
        if value.shape[1:] != known[0].shape[1:]:
            raise ValueError(
                f"{name} of graph {position} is {tuple(value.shape)} and that of graph 0 {tuple(known[0].shape)}, "
                "expected as many columns"
            )
    return torch.cat(known), torch.tensor([len(value) for value in known])


def is_per_node(rows: Tensor, num_nodes: Sequence[int], source: str) -> bool:
    """Whether targets are those of nodes, not of whole graphs.

    Args:
        rows: (G,), of y in each graph.
        num_nodes: of each graph.
        source: what holds the graphs, for messages.

    Raises:
        ValueError: neither every graph has one row nor every node.

    Example:
        >>> is_per_node(torch.tensor([1, 1]), [3, 5], "data"), is_per_node(torch.tensor([3, 5]), [3, 5], "data")
        (False, True)
    """
    if bool((rows == 1).all()):
        return False
    for position, (own, nodes) in enumerate(zip(rows.tolist(), num_nodes, strict=True)):
        if own != nodes:
            raise ValueError(
                f"{source}: y of graph {position} has {own} rows, expected 1 for the graph or {nodes} for its nodes; "
                "several targets of one graph are (1, T)"
            )
    return True


def check_finite(graphs: Sequence[Any], source: str) -> None:
    """Refuses node features, edge features and coordinates that are NaN or infinite.

    Args:
        graphs: see :func:`gather`.
        source: what holds them, for the message.

    Raises:
        ValueError: the message names the first such graph.
    """
    for name in ("x", "edge_attr", "pos"):
        found = gather(graphs, name)
        if found is None or not found[0].is_floating_point():
            continue
        values, rows = found
        broken = ~values.isfinite().reshape(len(values), -1).all(dim=1)
        if broken.any():
            first = int(broken.nonzero()[0])
            graph = int((rows.cumsum(0) <= first).sum())
            raise ValueError(
                f"{source}: {name} of graph {graph} is NaN or infinite, in {int(broken.sum())} of {len(values)} rows "
                "of the data; replace such values, or leave the graphs out"
            )
