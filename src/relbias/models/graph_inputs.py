"""What is known of nodes and edges, checked, and the embeddings of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relbias.relations import GraphBatch
from relbias.relations.base import can_check_values, check_size


def as_categories(values: Tensor, types: Sequence[int], name: str, option: str) -> Tensor:
    """Categories as (n, C) int64, from integers, or from floats that hold integers.

    Args:
        values: (n, C), or (n,) for one column.
        types: how many categories each column has.
        name: what the user called the values, such as "x".
        option: what the user called `types`, such as "node_types".

    Raises:
        ValueError: another shape, or (on CPU, outside compile and export) a number that is not one of the categories.
    """
    columns = values[:, None] if values.ndim == 1 else values
    if columns.ndim != 2 or columns.shape[1] != len(types) or columns.dtype.is_complex:
        expected = f"(n, {len(types)})" if len(types) > 1 else "(n,) or (n, 1)"
        raise ValueError(
            f"{name} must have shape {expected}, one column for each of {option}, got {tuple(values.shape)} "
            f"{values.dtype}; give {option} a number of categories for each column"
        )
    if not columns.dtype.is_floating_point:
        columns = columns.long()  # a limit need not fit a narrow dtype
    if can_check_values(columns):
        for column, limit in enumerate(types):
            wrong = ~((columns[:, column] >= 0) & (columns[:, column] < limit))  # also of nan
            if columns.dtype.is_floating_point:
                wrong |= columns[:, column] != columns[:, column].round()
            if bool(wrong.any()):
                raise ValueError(_not_a_category(columns[wrong, column][0].item(), column, types, name, option))
    return columns.long()


def _not_a_category(value: float, column: int, types: Sequence[int], name: str, option: str) -> str:
    where = f"column {column} of {name}" if len(types) > 1 else name
    expected = f"{where} holds {value:g}, expected categories from 0 to {types[column] - 1}"
    features = option.replace("types", "features")
    if not math.isfinite(value) or value != round(value):
        return f"{expected}; for real numbers give {features} instead of {option}"
    if value < 0:
        return f"{expected}; count them from 0"
    needed = [*types[:column], int(value) + 1, *types[column + 1 :]] if len(types) > 1 else int(value) + 1
    return f"{expected}; give {option}={needed} or more"


def as_features(values: Tensor, num_features: int, name: str, option: str, dtype: torch.dtype) -> Tensor:
    """Real numbers as (n, F) in a dtype.

    Args:
        values: (n, F), or (n,) for one feature.
        num_features: F.
        name: what the user called the values.
        option: what the user called F.
        dtype: of the result.

    Raises:
        ValueError: another shape, or (on CPU, outside compile and export) a number that is not finite.
    """
    columns = values[:, None] if values.ndim == 1 else values
    if columns.ndim != 2 or columns.shape[1] != num_features or columns.dtype.is_complex:
        raise ValueError(
            f"{name} must have shape (n, {num_features}), got {tuple(values.shape)} {values.dtype}; "
            f"give {option} the number of its columns"
        )
    if can_check_values(columns) and columns.dtype.is_floating_point:
        wrong = ~columns.isfinite()
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"{name} holds {columns[row, column].item()} in row {row}, column {column}; "
                "fill in or leave out what is missing"
            )
    return columns.to(dtype)


def as_types(types: int | Sequence[int] | None, option: str) -> list[int] | None:
    """The numbers of categories of each column, or a ValueError."""
    if types is None:
        return None
    columns = [types] if isinstance(types, int) else list(types)
    if not columns:
        raise ValueError(f"{option} is a number of categories, or a list with one for each column; got an empty list")
    for number in columns:
        check_size(option, number, 1)
    return columns


class NodeEmbedding(nn.Module):
    """Tokens of nodes: the sum of embeddings of their categories, or a linear map of their numbers, and of degrees.

    h_i = sum_c e_c[x_ic] or W x_i + b, and with degrees + z_in[in-degree] + z_out[out-degree], as the centrality
    encoding of Graphormer (https://arxiv.org/abs/2106.05234). Without either every node starts as one learned vector.

    Args:
        dim: the size of a token.
        types: how many categories each column of x has, or None.
        num_features: how many real numbers a node has, or None.
        max_degree: the largest degree with an embedding of its own, which larger ones share; None for no degrees.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: both `types` and `num_features` are given, or a number is too small.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> NodeEmbedding(8, types=[5])(torch.tensor([4, 0, 0]), GraphBatch(edges, num_nodes=3)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        dim: int,
        types: int | Sequence[int] | None = None,
        num_features: int | None = None,
        max_degree: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        like: Any = {"device": device, "dtype": dtype}
        self.types, self.num_features = as_types(types, "node_types"), num_features
        if self.types is not None and num_features is not None:
            raise ValueError("give node_types, for x of categories, or node_features, for real numbers, and not both")
        self.categories: Any = nn.ModuleList(nn.Embedding(number, dim, **like) for number in self.types or [])
        self.linear: nn.Linear | None = None
        self.constant: nn.Parameter | None = None
        if num_features is not None:
            check_size("node_features", num_features, 1)
            self.linear = nn.Linear(num_features, dim, **like)
        elif self.types is None:
            self.constant = nn.Parameter(torch.empty(dim, **like))
        self.in_degree: nn.Embedding | None = None
        self.out_degree: nn.Embedding | None = None
        if max_degree is not None:
            check_size("max_degree", max_degree, 0)
            self.in_degree = nn.Embedding(max_degree + 1, dim, **like)
            self.out_degree = nn.Embedding(max_degree + 1, dim, **like)
        self._reset_constant()

    def reset_parameters(self) -> None:
        """Give every parameter its start: embeddings are drawn with a standard deviation of 1."""
        for layer in (*self.categories, self.linear, self.in_degree, self.out_degree):
            if layer is not None:
                layer.reset_parameters()
        self._reset_constant()

    def _reset_constant(self) -> None:
        if self.constant is not None:
            nn.init.normal_(self.constant)

    def forward(self, x: Tensor | None, graphs: GraphBatch) -> Tensor:
        """The tokens.

        Args:
            x: (V, C) or (V,) integers, or (V, F); None without either.
            graphs: of V nodes.

        Returns:
            (V, dim).

        Raises:
            ValueError: x is missing, or does not fit.
        """
        tokens = self._embed(x, graphs.num_nodes)
        if self.in_degree is not None and self.out_degree is not None:
            most = self.in_degree.num_embeddings - 1
            arriving, leaving = (degrees.clamp(max=most) for degrees in graphs.degrees)
            tokens = tokens + self.in_degree(arriving) + self.out_degree(leaving)
        return tokens

    def _embed(self, x: Tensor | None, num_nodes: int) -> Tensor:
        if self.constant is not None:
            if x is not None:
                raise ValueError("the model has no features of nodes; give it node_types or node_features, or x=None")
            return self.constant.expand(num_nodes, -1)
        if x is None:
            given = "node_types" if self.types is not None else "node_features"
            raise ValueError(f"the model has {given} and x is None; pass x, or build the model without {given}")
        if self.types is None:
            linear: Any = self.linear
            return linear(as_features(x, linear.in_features, "x", "node_features", linear.weight.dtype))
        columns = as_categories(x, self.types, "x", "node_types").unbind(dim=1)
        first, *others = (table(column) for table, column in zip(self.categories, columns, strict=True))
        return sum(others, first)
