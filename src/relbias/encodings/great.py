"""GREAT's number per edge type, multiplied with the key."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.relations import EdgeSets, EdgeSetsIndex, Relation
from relbias.terms import Terms

_TYPES_PER_TABLE = 6
"""A table has 2^6 rows at most, so that its product with the keys costs no more than that of queries and keys."""


class GREAT(Encoding):
    """A number per edge type, times the sum of the key's dimensions (https://openreview.net/forum?id=B1lnbRNtwr).

    s_ij = c (q_i . k_j + (sum_t e_t . p) sum_a k_j,a), where t runs over the types of the edges from i to j, e_t is the
    type's embedding and p a vector. The numbers e_t . p are shared by all heads; the heads differ by their keys.

    A table over all sets of T types would have 2^T rows. The types are divided into groups of at most six instead, each
    with a table of its own over the sets of its group, whose terms add up.

    Args:
        num_heads: H.
        head_dim: D.
        relation: an EdgeSets of T types.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embeddings: (T, D), e, drawn with a standard deviation of 0.02.
        projection: (D,), p, likewise.

    Raises:
        ValueError: the relation is not an EdgeSets.

    Example:
        >>> encoding = GREAT(num_heads=8, head_dim=64, relation=EdgeSets(num_types=10))
        >>> terms = encoding(EdgeSets(10)(torch.zeros(5, 5, dtype=torch.long)))
        >>> [tuple(entry.Q.shape) for entry in terms.entries]
        [(1, 32, 64), (1, 32, 64)]
    """

    name = "great"
    formula = "Q[r] = sum of e_t . p over the edge types t in r, in every dimension"
    paper = "Hellendoorn et al. 2020, https://openreview.net/forum?id=B1lnbRNtwr"
    extrapolation = "none"
    relations = (EdgeSets,)
    fixed_size = True

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
        self.embeddings = self._parameter(self.relation.num_types, head_dim)
        self.projection = self._parameter(head_dim)
        self.reset_parameters()

    def forward(self, index: EdgeSetsIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        dtype = torch.promote_types(self.embeddings.dtype, torch.float32)
        with without_autocast(self.embeddings):
            numbers = self.embeddings.to(dtype) @ self.projection.to(dtype)
        groups = numbers.tensor_split(-(-len(numbers) // _TYPES_PER_TABLE))
        terms, first = Terms(), 0
        for group in groups:
            types = index.types(first, len(group))
            sets = torch.arange(types.num_codes, device=numbers.device)[:, None]
            bits = sets >> torch.arange(len(group), device=numbers.device) & 1
            rows = (bits * group).sum(dim=-1)
            terms = terms + Terms(Q=rows[None, :, None].expand(1, -1, self.head_dim), index=types)
            first += len(group)
        return terms

    def zero_(self) -> None:
        """Set the vector p to zero."""
        nn.init.zeros_(self.projection)
