"""T5's biases over logarithmic buckets of the offset."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.buckets import check_buckets, t5_buckets
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.terms import Terms


class T5(Encoding):
    """Biases over logarithmic buckets of the offset, b_ij = table[h, bucket(j - i)] (https://arxiv.org/abs/1910.10683).

    T5 itself does not scale the logits: its c is 1 (`scale="paper"`).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence.
        num_buckets: R, even when bidirectional.
        max_distance: the distance from which on all share the last bucket, in positions.
        bidirectional: whether both directions have buckets; False for causal attention.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        table: (H, R), drawn with a standard deviation of 0.02.

    Raises:
        ValueError: too few buckets, or max_distance within the buckets of one distance each.

    Example:
        >>> encoding = T5(num_heads=8, head_dim=64)
        >>> encoding(Sequence()(10, 20)).names
        ('b',)
    """

    name = "t5"
    formula = "b = table_h[bucket(j - i)], logarithmic buckets"
    paper = "Raffel et al. 2020, https://arxiv.org/abs/1910.10683"
    extrapolation = "clipped"
    relations = (Sequence,)
    offsets_only = True
    paper_scale = 1.0

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_buckets(self.label, num_buckets, max_distance, bidirectional)
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.table = self._parameter(num_heads, num_buckets)
        self.reset_parameters()

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms(b=self.table, index=index.map(self._bucket, self.num_buckets))

    def _bucket(self, offsets: Tensor) -> Tensor:
        return t5_buckets(offsets, self.num_buckets, self.max_distance, self.bidirectional)

    def zero_(self) -> None:
        """Set the table to zero."""
        nn.init.zeros_(self.table)
