"""Message passing, to compare graph transformers with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import EncodingSpec
from relbias.models.graph_inputs import as_categories, as_features, as_types

with extra("graph"):
    from torch_geometric.nn import global_add_pool
    from torch_geometric.nn import models as pyg


class GIN(nn.Module):
    """PyG's graph isomorphism network (K. Xu et al., 2019, https://arxiv.org/abs/1810.00826) with a sum over the nodes.

    It takes no notice of what is known of edges, and has no attention: its encoding is "none".

    Args:
        encoding: "none", since every network of a task is given one.
        num_outputs: numbers that come out for a graph.
        node_types: categories of x, or of each of its columns; the columns' vectors are added up.
        node_features: the number of columns of a floating x; one of the two is given.
        dim: width.
        depth: layers, each a sum over neighbours and two linear maps with batch norm.
        dropout: between the layers.

    Raises:
        ValueError: another encoding, or not exactly one of `node_types` and `node_features`, or a number below 1.

    Example:
        >>> network = GIN("none", num_outputs=2, node_types=5, dim=8, depth=2)
        >>> network(torch.tensor([[0], [4]]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0])).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        encoding: EncodingSpec = "none",
        *,
        num_outputs: int,
        node_types: int | Sequence[int] | None = None,
        node_features: int | None = None,
        dim: int = 64,
        depth: int = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if encoding not in ("none", None):
            raise ValueError(f"GIN has no attention, and the encoding is {encoding!r}; give encoding none")
        if (node_types is None) == (node_features is None):
            raise ValueError("give one of node_types (categories) and node_features (columns of a floating x)")
        if node_features is not None:
            self.embedding: nn.Module = nn.Linear(node_features, dim)
        else:
            self.counts = as_types(node_types, "node_types") or []
            self.embedding = nn.Embedding(sum(self.counts), dim)
            starts = list(itertools.accumulate(self.counts, initial=0))[:-1]
            self.starts: Tensor
            self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.layers = pyg.GIN(dim, dim, depth, dropout=dropout, norm="batch_norm")
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, num_outputs))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Outputs of graphs.

        Args:
            x: (V, C) or (V,) categories, integers or floats that hold integers; or (V, F) real numbers.
            edge_index: (2, E).
            batch: (V,), the graph of each node; None for one graph.

        Returns:
            (B, num_outputs).

        Raises:
            ValueError: x does not fit or (on CPU, outside compile and export) is out of range.
        """
        if isinstance(self.embedding, nn.Embedding):
            x = as_categories(x, self.counts, "x", "node_types") + self.starts
            x = self.embedding(x).sum(dim=1)
        else:
            linear: Any = self.embedding
            x = linear(as_features(x, linear.in_features, "x", "node_features", linear.weight.dtype))
        return self.head(global_add_pool(self.layers(x, edge_index), batch))
