"""Graphormer's bias from the edges of shortest paths."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.relations import EdgePaths, EdgePathsIndex, Relation
from relbias.terms import Terms


class GraphormerEdges(Encoding):
    """The mean over the edges of a shortest path, b_ij = 1/n sum_l e(x_l) W_l (https://arxiv.org/abs/2106.05234).

    x_1 ... x_n are the path's first n <= L edges, e(x) an edge's embedding, one number per head, and W_l a matrix for
    the place of an edge on the path. Of an edge's type e is the embedding, of several types the mean of theirs, as in
    the authors' code, and of features a linear map without a bias. Without a path b is 0.

    The sums go from path to path, S(path) = S(path without its last edge) + e(x) W_l, once for each path that differs
    from the others in its edges' types, and b reads them: no edge is read twice for a pair, and nothing is made of the
    size N x N x L. By features all paths differ, so that there are up to H numbers for each pair.

    Graphormer adds a number per distance, a table over `Hops`; give both in a mapping, as in the example.

    Args:
        num_heads: H.
        head_dim: D.
        relation: an EdgePaths of T types, in all columns, or F features, and L edges.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embeddings: (T, H) or (F, H), e, drawn with a standard deviation of 0.02; the types of one column after those of
            another.
        weights: (L, H, H), W, likewise.

    Raises:
        ValueError: the relation is not an EdgePaths.

    Example:
        >>> import relbias as rb
        >>> from relbias.relations import GraphBatch, Hops
        >>> relations = {"hops": Hops(20, prefix_tokens=1), "edges": EdgePaths(4, max_edges=5, prefix_tokens=1)}
        >>> attention = rb.RelativeAttention(64, 8, {"hops": "table", "edges": "graphormer_edges"}, relations)
        >>> edges, types = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([3, 3, 0, 0])
        >>> graphs = GraphBatch(edges, num_nodes=3, edge_attr=types)
        >>> index = {name: relation.of_graphs(graphs) for name, relation in relations.items()}
        >>> attention(torch.randn(1, 4, 64), index=index).shape
        torch.Size([1, 4, 64])
    """

    name = "graphormer_edges"
    formula = "b = 1/n sum_l e(x_l) W_l over the edges of the path from i to j, x_l their types or features"
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
        self.embeddings = self._parameter(self.relation.num_features or sum(self.relation.columns), num_heads)
        self.weights = self._parameter(self.relation.max_edges, num_heads, num_heads)
        self.reset_parameters()

    def forward(self, index: EdgePathsIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        dtype = torch.promote_types(self.weights.dtype, torch.float32)
        forest = index.forest
        with without_autocast(self.weights):
            tables = (self._embedded(forest.edges, dtype) @ self.weights.to(dtype)).mT  # (L, H, K)
        zero = tables.new_zeros(self.num_heads, 1)
        if forest.starts is None:
            sums = tables.new_zeros(self.num_heads, forest.parents.shape[0])
            for depth, table in enumerate(tables.unbind(), start=1):
                longer = sums.index_select(1, forest.parents[1:]) + table.index_select(1, forest.kinds[1:])
                sums = torch.cat((zero, longer.where(forest.depths[1:] == depth, sums[:, 1:])), dim=1)
            return Terms(b=sums / forest.depths.clamp(min=1), index=index)
        sums, means, first = zero, [zero], 0
        for depth, (start, stop) in enumerate(pairwise(forest.starts), start=1):
            parents, kinds = forest.parents[start:stop] - first, forest.kinds[start:stop]
            sums, first = sums.index_select(1, parents) + tables[depth - 1].index_select(1, kinds), start
            means.append(sums / depth)
        return Terms(b=torch.cat(means, dim=1), index=index)

    def _embedded(self, edges: Tensor, dtype: torch.dtype) -> Tensor:
        """The embedding of each of K edges, (K, H), from (K, C) types or (K, F) features."""
        embeddings = self.embeddings.to(dtype)
        if self.relation.num_features is not None:
            return edges.to(dtype) @ embeddings
        columns = self.relation.columns
        firsts = [sum(columns[:place]) for place in range(len(columns))]
        parts = [
            embeddings.index_select(0, types + first) for types, first in zip(edges.unbind(dim=1), firsts, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.stack(parts).mean(dim=0)

    def zero_(self) -> None:
        """Set the embeddings to zero."""
        nn.init.zeros_(self.embeddings)
