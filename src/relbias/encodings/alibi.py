"""ALiBi's linear biases."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.terms import Terms

Variant = Literal["symmetric", "causal", "asymmetric"]


def alibi_slopes(num_heads: int) -> list[float]:
    """ALiBi's slopes m_h: 2^(-8 (h + 1) / H) where H is a power of two.

    For any other H those of the power of two below it come first, then every second one of the power above it.

    Args:
        num_heads: H.

    Example:
        >>> alibi_slopes(2)
        [0.0625, 0.00390625]
    """
    if num_heads < 1:
        return []
    below = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / below) for h in range(below)]
    above = [2.0 ** (-8.0 * (h + 1) / (2 * below)) for h in range(2 * below)]
    return slopes + above[0::2][: num_heads - below]


class ALiBi(Encoding):
    """Attention with linear biases, b_ij = -m_h |i - j| (https://arxiv.org/abs/2108.12409); no parameters.

    Args:
        num_heads: H, any number.
        head_dim: D.
        relation: a Sequence without max_distance.
        variant: "symmetric" penalises both directions. "causal" moreover hides the keys after the query (-inf); under
            a causal mask the two are equal. In "asymmetric" the first half of the heads sees only the query and the
            keys before it and the second half only the query and the keys after it, each half with the slopes of
            H / 2 heads.
        strength: the start of a learned factor per head, or None for no factor.
        device: where the biases are computed.
        dtype: of the strength.

    Raises:
        ValueError: there is no such variant, or the relation is clipped.

    Example:
        >>> encoding = ALiBi(num_heads=8, head_dim=64, variant="causal")
        >>> encoding(Sequence()(3)).entries[0].b[0]  # head 0, for the offsets -2 ... 2
        tensor([-1.0000, -0.5000,  0.0000,    -inf,    -inf], dtype=torch.float64)
    """

    name = "alibi"
    formula = "b = -m_h |j - i|, m_h = 2^(-8 (h + 1) / H)"
    paper = "Press et al. 2022, https://arxiv.org/abs/2108.12409"
    relations = (Sequence,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        variant: Variant = "symmetric",
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if variant not in get_args(Variant):
            raise ValueError(f"'alibi' has the variants {', '.join(get_args(Variant))}; got {variant!r}")
        if self.relation.num_codes is not None:
            raise ValueError(f"'alibi' is linear in the distance and takes Sequence() unclipped, got {self.relation!r}")
        self.variant = variant
        backward = (num_heads + 1) // 2  # heads that look back, in the asymmetric variant
        self.num_backward = backward if variant == "asymmetric" else num_heads
        self.slopes = alibi_slopes(self.num_backward) + alibi_slopes(num_heads // 2)[: num_heads - self.num_backward]

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        offsets = index.offsets(self.device)
        if offsets is None:
            return Terms(b=lambda rows: self.bias(index.differences(rows)[:, 0]).transpose(0, 1))
        # Every diagonal has one offset: N + M - 1 numbers per head are enough.
        n, m = index.shape
        return Terms(b=self.bias(offsets), index=index.map(lambda d: index.sign * d + m - 1, n + m - 1))

    def bias(self, offsets: Tensor) -> Tensor:
        """The bias of each head at offsets j - i, (...) int64, in positions: (H, ...) float64."""
        slopes = torch.tensor(self.slopes, dtype=torch.float64, device=offsets.device)
        slopes = slopes.view(-1, *[1] * offsets.ndim)
        bias = slopes * -offsets.abs()
        if self.variant == "symmetric":
            return bias
        heads = torch.arange(self.num_heads, device=offsets.device).view(slopes.shape)
        hidden = torch.where(heads < self.num_backward, offsets > 0, offsets < 0)
        return bias.masked_fill(hidden, -math.inf)

    def zero_(self) -> None:
        """Start the strength per head at zero.

        Raises:
            ValueError: the variant hides keys, which no strength undoes.
        """
        if self.variant != "symmetric":
            raise ValueError(
                f"'alibi' with variant={self.variant!r} hides keys and cannot start as zero; use 'symmetric'"
            )
        super().zero_()
