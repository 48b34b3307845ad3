"""What the encodings whose bias is a function of the offset have in common."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.terms import Terms


class OffsetBias(Encoding):
    """An encoding whose bias is a function of the offset, b_ij = b_h(j - i), evaluated once per diagonal.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        strength: the start of a learned factor per head, or None for no factor.
        device: where the biases are computed.
        dtype: of the parameters.

    Raises:
        ValueError: the relation is clipped.
    """

    relations = (Sequence,)
    offsets_only = True

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
        if self.relation.max_distance is not None:
            raise ValueError(
                f"{self.label} is a function of the distance and takes relations without max_distance, "
                f"got {self.relation!r}"
            )

    @abstractmethod
    def bias(self, offsets: Tensor) -> Tensor:
        """The bias of each head at offsets j - i, (...) int64, in positions: (H, ...) float64."""

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        offsets = index.offsets(self.device)
        if offsets is None:
            return Terms(b=lambda rows: self.bias(index.differences(rows)[:, 0]).transpose(0, 1))
        # Every diagonal has one offset: N + M - 1 numbers per head are enough.
        n, m = index.shape
        return Terms(b=self.bias(offsets), index=index.map(lambda d: index.sign * d + m - 1, n + m - 1))
