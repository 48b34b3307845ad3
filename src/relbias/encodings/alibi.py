"""ALiBi's linear biases."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from relbias.encodings.offset_bias import OffsetBias
from relbias.relations import Grid, GridIndex, Relation, Sequence, SequenceIndex
from relbias.terms import Terms

Variant = Literal["symmetric", "causal", "asymmetric", "nonsymmetric"]


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


class ALiBi(OffsetBias):
    """Attention with linear biases, b_ij = -m_h |i - j| (https://arxiv.org/abs/2108.12409).

    On a grid b_ij = -m_h ||(dy, dx)||, the Euclidean distance in patches, as in CROMA
    (https://arxiv.org/abs/2311.00566); pairs with a prefix token have no bias. The slopes m_h are fixed, and there are
    no parameters, unless they are learned.

    Args:
        num_heads: H, any number.
        head_dim: D.
        relation: a Sequence or a Grid, without max_distance.
        variant: "symmetric" penalises both directions. "causal" moreover hides the keys after the query (-inf); under
            a causal mask the two are equal. In "asymmetric" the first half of the heads sees only the query and the
            keys before it and the second half only the query and the keys after it, each half with the slopes of
            H / 2 heads. "nonsymmetric" has two learned slopes per head, one for the keys before the query and one for
            those after it (https://github.com/ofirpress/attention_with_linear_biases/issues/5). A grid has no order
            and takes "symmetric" alone.
        learned: whether the slopes are trained, as m_h = exp(log_slopes_h), from the fixed ones on. In the paper
            trained slopes did not extrapolate to longer sequences.
        strength: the start of a learned factor per head, or None for no factor.
        device: where the biases are computed.
        dtype: of the parameters.

    Attributes:
        log_slopes: (H,), (2, H) for "nonsymmetric" (before, after), or None where the slopes are fixed.

    Raises:
        ValueError: there is no such variant, it needs learned slopes or a sequence, or the relation is clipped.

    Example:
        >>> encoding = ALiBi(num_heads=8, head_dim=64, variant="causal")
        >>> encoding(Sequence()(3)).entries[0].b[0]  # head 0, for the offsets -2 ... 2
        tensor([-1.0000, -0.5000,  0.0000,    -inf,    -inf], dtype=torch.float64)
    """

    name = "alibi"
    formula = "b = -m_h |j - i|, m_h = 2^(-8 (h + 1) / H); on a grid b = -m_h ||(dy, dx)||"
    paper = "Press et al. 2022, https://arxiv.org/abs/2108.12409"
    relations = (Sequence, Grid)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        variant: Variant = "symmetric",
        learned: bool = False,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if variant not in get_args(Variant):
            raise ValueError(f"'alibi' has the variants {', '.join(get_args(Variant))}; got {variant!r}")
        if isinstance(self.relation, Grid) and variant != "symmetric":
            raise ValueError(f"a grid has no order: 'alibi' over it takes variant='symmetric', got {variant!r}")
        if variant == "nonsymmetric" and not learned:
            raise ValueError(
                "'alibi' with variant='nonsymmetric' differs from 'symmetric' by learned=True alone; add it"
            )
        self.variant = variant
        backward = (num_heads + 1) // 2  # heads that look back, in the asymmetric variant
        self.num_backward = backward if variant == "asymmetric" else num_heads
        self.slopes = alibi_slopes(self.num_backward) + alibi_slopes(num_heads // 2)[: num_heads - self.num_backward]
        self.log_slopes: nn.Parameter | None = None
        if learned:
            self.log_slopes = self._parameter(*(2, num_heads) if variant == "nonsymmetric" else (num_heads,))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give learned slopes the values of the fixed ones."""
        super().reset_parameters()
        if self.log_slopes is not None:
            with torch.no_grad():
                self.log_slopes.copy_(torch.tensor(self.slopes, dtype=torch.float64).log())

    def forward(
        self, index: SequenceIndex | GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None
    ) -> Terms:
        if isinstance(index, SequenceIndex):
            return super().forward(index)
        dy, dx = (torch.arange(-limit, limit + 1, device=self.device).double() for limit in index.limits)
        distances = torch.hypot(dy[:, None], dx).flatten()
        distances = nn.functional.pad(distances, (0, index.num_codes - index.num_patch_codes))
        return Terms(b=self._slopes(self.device)[-1, :, None] * -distances, index=index)

    def _slopes(self, device: torch.device) -> Tensor:
        """The slopes for keys before and after the query, which may be the same, (2 or 1, H) float64."""
        if self.log_slopes is None:
            return torch.tensor([self.slopes], dtype=torch.float64, device=device)
        return self.log_slopes.double().exp().view(-1, self.num_heads)

    def bias(self, offsets: Tensor) -> Tensor:
        """The bias of each head at offsets j - i, (...) int64, in positions: (H, ...) float64."""
        shape = (-1, *[1] * offsets.ndim)
        before, after = (slopes.view(shape) for slopes in (self._slopes(offsets.device)[i] for i in (0, -1)))
        bias = torch.where(offsets < 0, before, after) * -offsets.abs()
        if self.variant not in ("causal", "asymmetric"):
            return bias
        heads = torch.arange(self.num_heads, device=offsets.device).view(shape)
        hidden = torch.where(heads < self.num_backward, offsets > 0, offsets < 0)
        return bias.masked_fill(hidden, -math.inf)

    def zero_(self) -> None:
        """Start the strength per head at zero.

        Raises:
            ValueError: the variant hides keys, which no strength undoes.
        """
        if self.variant in ("causal", "asymmetric"):
            raise ValueError(
                f"'alibi' with variant={self.variant!r} hides keys and cannot start as zero; use 'symmetric'"
            )
        super().zero_()
