"""What is known of a graph's edges, as types or as features."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import can_check_values


def edge_categories(
    edge_attr: Tensor | None, num_types: tuple[int, ...], num_edges: int, *, all_columns: bool = False
) -> Tensor:
    """The first columns of edge_attr as types, or a ValueError that says what is wrong with them.

    Args:
        edge_attr: (E,) or (E, F), whole numbers, in any dtype; None where every column has one type.
        num_types: of each of C columns, the first ones; types are numbers in [0, T).
        num_edges: E.
        all_columns: whether other columns are refused.

    Returns:
        (E, C) int64.
    """
    count = len(num_types)
    if edge_attr is None:
        if any(types > 1 for types in num_types):
            raise ValueError(
                f"the graphs have no edge_attr, expected edges of {' and '.join(map(str, num_types))} types; give "
                "edge_attr, or 1 type if all edges are alike"
            )
        return torch.zeros(num_edges, count, dtype=torch.int64)
    columns = edge_attr[:, None] if edge_attr.ndim == 1 else edge_attr
    wrong = columns.ndim != 2 or columns.shape[0] != num_edges or columns.shape[1] < count
    if wrong or (all_columns and columns.shape[1] > count):
        expected = f"({num_edges}, {count if all_columns else 'F'})"
        raise ValueError(
            f"edge_attr has shape {expected}{f' or ({num_edges},)' if count == 1 else ''}, got {tuple(edge_attr.shape)}"
        )
    columns = columns[:, :count]
    if can_check_values(columns) and columns.numel():
        if columns.dtype.is_floating_point and not bool((columns == columns.round()).all()):
            wrong = columns[columns != columns.round()][0]
            raise ValueError(f"edge_attr holds {float(wrong):g}, expected types, which are whole numbers from 0 on")
        limits = columns.new_tensor(num_types, dtype=torch.int64)
        outside = (columns < 0) | (columns >= limits)
        if bool(outside.any()):
            edge, column = outside.nonzero()[0].tolist()
            raise ValueError(
                f"edge {edge} has the type {int(columns[edge, column])} in column {column} of edge_attr, expected 0 to "
                f"{num_types[column] - 1}; give the relation more types or correct edge_attr"
            )
    return columns.long()


def edge_features(edge_attr: Tensor | None, num_features: int, num_edges: int) -> Tensor:
    """edge_attr as features, or a ValueError that says what is wrong with them.

    Args:
        edge_attr: (E, F) floating, or (E,) for one feature.
        num_features: F.
        num_edges: E.

    Returns:
        (E, F), in the dtype given.
    """
    if edge_attr is None:
        raise ValueError(f"the graphs have no edge_attr, expected {num_features} features of each edge; give edge_attr")
    columns = edge_attr[:, None] if edge_attr.ndim == 1 else edge_attr
    if columns.shape != (num_edges, num_features) or not columns.dtype.is_floating_point:
        raise ValueError(
            f"edge_attr has shape ({num_edges}, {num_features}) and is floating, got {tuple(edge_attr.shape)} "
            f"{edge_attr.dtype}"
        )
    if can_check_values(columns) and not bool(columns.isfinite().all()):
        raise ValueError("edge_attr must be finite, got nan or inf; correct the features of edges")
    return columns
