"""Graphormer's bias from the edges of shortest paths."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.encodings.row_blocks import in_row_blocks
from relbias.relations import EdgePaths, EdgePathsIndex, Relation
from relbias.terms import Terms


class GraphormerEdges(Encoding):
    """The mean over the edges of a shortest path, b_ij = 1/n sum_l e[t_l] W_l (https://arxiv.org/abs/2106.05234).

    t_1 ... t_n are the types of the path's first n <= L edges, e the type's embedding, one number per head, and W_l a
    matrix for the place of an edge on the path. Without a path b is 0. Embeddings and matrices are multiplied once for
    each type, not for each pair, and looked up.

    Graphormer adds a number per distance, a table over `Hops`; give both in a mapping, as in the example.

    Args:
        num_heads: H.
        head_dim: D.
        relation: an EdgePaths of T types and L edges.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embeddings: (T, H), e, drawn with a standard deviation of 0.02.
        weights: (L, H, H), W, likewise.

    Raises:
        ValueError: the relation is not an EdgePaths.

    Example:
        >>> import relbias as rb
        >>> from relbias.relations import Hops, typed_paths
        >>> relations = {"hops": Hops(20, prefix_tokens=1), "edges": EdgePaths(4, max_edges=5, prefix_tokens=1)}
        >>> attention = rb.RelativeAttention(64, 8, {"hops": "table", "edges": "graphormer_edges"}, relations)
        >>> edges, types = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([3, 3, 0, 0])
        >>> distances, paths = typed_paths(edges, types, num_nodes=3, max_edges=5)
        >>> index = {"hops": relations["hops"](distances), "edges": relations["edges"](paths)}
        >>> attention(torch.randn(1, 4, 64), index=index).shape
        torch.Size([1, 4, 64])
    """

    name = "graphormer_edges"
    formula = "b = 1/n sum_l e[t_l] W_l over the edges of the path from i to j, t_l their types"
    paper = "Ying et al. 2021, https://arxiv.org/abs/2106.05234"
    extrapolation = "clipped"
    relations = (EdgePaths,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        self.embeddings = self._parameter(self.relation.num_types, num_heads)
        self.weights = self._parameter(self.relation.max_edges, num_heads, num_heads)
        self.reset_parameters()

    def forward(self, index: EdgePathsIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        dtype = torch.promote_types(self.weights.dtype, torch.float32)
        with without_autocast(self.weights):
            tables = (self.embeddings.to(dtype) @ self.weights.to(dtype)).mT  # (L, H, T)
        tables = nn.functional.pad(tables, (1, 0))  # the first column is read after the end of a path
        (batch, _), (n, m) = index.batch_heads, index.shape

        def bias(rows: slice) -> Tensor:
            paths = index.paths(rows)
            total = tables.new_zeros(self.num_heads, paths[..., 0].numel())
            for table, types in zip(tables.unbind(), paths.unbind(dim=-1), strict=True):
                total = total + table.index_select(1, types.flatten() + 1)
            lengths = (paths >= 0).sum(dim=-1).clamp(min=1)
            return total.view(self.num_heads, *lengths.shape).transpose(0, 1) / lengths[:, None]

        # The types of the edges, and a number per head and edge.
        size = batch * m * (len(self.weights) + 2 * self.num_heads)
        return Terms(b=lambda rows: in_row_blocks(bias, rows, n, size), index=index)

    def zero_(self) -> None:
        """Set the embeddings to zero."""
        nn.init.zeros_(self.embeddings)
