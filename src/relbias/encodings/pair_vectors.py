"""What the encodings with vectors of their own for each code and head have in common."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Index, Relation
from relbias.terms import Terms


class PairVectors(Encoding):
    """An encoding with a vector per head and code for the query, the key and the value, all read at r_ij.

    Args:
        num_heads: H.
        head_dim: D.
        relation: with a limited number of codes R.
        values: whether to have the table V.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        query_vectors: (H, R, D), K of the equation, drawn with a standard deviation of 0.02.
        key_vectors: (H, R, D), Q of the equation, likewise.
        value_vectors: (H, R, D), V of the equation, likewise, or None.
    """

    extrapolation = "none"
    fixed_size = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        values: bool = True,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        shape = (num_heads, self.relation.num_codes, head_dim)
        self.query_vectors = self._parameter(*shape)
        self.key_vectors = self._parameter(*shape)
        self.value_vectors = self._parameter(*shape) if values else None
        self.reset_parameters()

    def forward(self, index: Index, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms(K=self.query_vectors, Q=self.key_vectors, V=self.value_vectors, index=index)

    def zero_(self) -> None:
        """Set the tables to zero."""
        for table in (self.query_vectors, self.key_vectors, self.value_vectors):
            if table is not None:
                nn.init.zeros_(table)
