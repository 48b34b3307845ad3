"""GRPE's vectors for hops and edge types."""

from __future__ import annotations

from relbias.encodings.pair_vectors import PairVectors
from relbias.relations import Hops, Pairs


class GRPE(PairVectors):
    """Vectors of a pair of nodes for the query, the key and the value (https://arxiv.org/abs/2201.12787).

    s_ij = c (q_i . k_j + q_i . K_h[r_ij] + k_j . Q_h[r_ij]), o_i = sum_j a_ij (v_j + V_h[r_ij]).

    The paper has two such relations, whose terms add up: the number of hops between two nodes (the topology) and the
    type of their edge. Give both in a mapping, as in the example; `edge_types` makes the codes of the second. The
    key's term is multiplied with key j and each table is read at (i, j). The paper's graph token shares one code for
    all its pairs; that of `Hops` has one each for the rows, the columns and itself.

    Args:
        num_heads: H.
        head_dim: D.
        relation: Hops or Pairs.
        values: whether to have the table V.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        query_vectors: (H, R, D), K of the equation, drawn with a standard deviation of 0.02.
        key_vectors: (H, R, D), Q of the equation, likewise.
        value_vectors: (H, R, D), V of the equation, likewise, or None.

    Raises:
        ValueError: the relation is neither Hops nor Pairs.

    Example:
        >>> import torch
        >>> import relbias as rb
        >>> from relbias.relations import edge_types
        >>> relations = {"hops": Hops(max_distance=5, prefix_tokens=1), "edges": Pairs(num_codes=4 + 3)}
        >>> attention = rb.RelativeAttention(64, 8, {"hops": "grpe", "edges": "grpe"}, relations)
        >>> distances = torch.tensor([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
        >>> edges, types = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([3, 3, 0, 0])
        >>> index = {
        ...     "hops": relations["hops"](distances),
        ...     "edges": relations["edges"](edge_types(edges, types, num_nodes=3, num_types=4, prefix_tokens=1)),
        ... }
        >>> attention(torch.randn(1, 4, 64), index=index).shape
        torch.Size([1, 4, 64])
    """

    name = "grpe"
    formula = "K_h[r], Q_h[r], with values=True also V_h[r]"
    paper = "Park et al. 2022, https://arxiv.org/abs/2201.12787"
    relations = (Hops, Pairs)
