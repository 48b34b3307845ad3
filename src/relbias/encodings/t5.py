"""T5's biases over logarithmic buckets of the offset."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_size
from relbias.terms import Terms


def t5_buckets(offsets: Tensor, num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The bucket of each offset j - i.

    Of the n buckets of a direction (half of all when bidirectional) the first n / 2 hold one distance each, the rest
    grow logarithmically up to max_distance; all that is farther shares the last. The keys after the query have the
    upper half; in the other case they share bucket 0.

    Args:
        offsets: int64 of any shape, in positions.
        num_buckets: R.
        max_distance: the distance from which on all share the last bucket, in positions.
        bidirectional: whether both directions have buckets.

    Returns:
        int64 of the same shape, in [0, R).

    Example:
        >>> t5_buckets(torch.tensor([-200, -8, -1, 0, 1, 8, 200]), 32, 128, True)
        tensor([15,  8,  1,  0, 17, 24, 31])
    """
    base: Tensor | int = 0
    if bidirectional:
        num_buckets //= 2
        base = num_buckets * (offsets > 0)
        distances = offsets.abs()
    else:
        distances = (-offsets).clamp(min=0)
    exact = num_buckets // 2
    # float32 as in T5's own code: the edges of the buckets depend on the rounding of the logarithm.
    ratio = torch.log(distances.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    large = (exact + (ratio * (num_buckets - exact)).long()).clamp(max=num_buckets - 1)
    return base + torch.where(distances < exact, distances, large)


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
        check_size("'t5' num_buckets", num_buckets, 2)
        check_size("'t5' max_distance", max_distance, 1)
        least = 4 if bidirectional else 2
        if num_buckets < least or num_buckets % 2:
            raise ValueError(f"'t5' needs an even number of buckets, at least {least}, got num_buckets={num_buckets}")
        exact = num_buckets // least
        if max_distance <= exact:
            raise ValueError(
                f"'t5' has {exact} buckets of one distance each, so max_distance must be above {exact}, "
                f"got {max_distance}"
            )
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
