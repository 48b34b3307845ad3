"""WavLM's gated biases over logarithmic buckets of the offset."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.buckets import check_buckets, t5_buckets
from relbias.encodings.offsets import without_autocast
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.terms import Terms


class WavLM(Encoding):
    """Biases over buckets of the offset, times a gate that each query's input sets (https://arxiv.org/abs/2110.13900).

    b_ij = table[h, bucket(j - i)] as in T5, in both directions, and g_i = r (s c_h - 1) + 2 with r and s the sigmoids
    of a linear map of x_i,h, the slice h of the layer's input: its 8 outputs are added up by four. In WavLM all layers
    share the table and each has a gate of its own; here each layer has both of its own.

    The encoding needs the layer's input: RelativeAttention hands it down, other callers give `x=`, (B, N, H D).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence.
        num_buckets: R, even.
        max_distance: the distance from which on all share the last bucket, in positions.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        table: (H, R), drawn with a standard deviation of 0.02.
        gate: the linear map from D to 8, for all heads, drawn as torch draws one.
        constant: c, (H,), 1 at the start.

    Raises:
        ValueError: too few buckets, or max_distance within the buckets of one distance each; in a call, x is missing
            or has another shape.

    Example:
        >>> encoding = WavLM(num_heads=8, head_dim=64)
        >>> encoding(Sequence()(10), x=torch.randn(2, 10, 512)).names
        ('b', 'g')
    """

    name = "wavlm"
    formula = "g b, b = table_h[bucket(j - i)], g_i = r (s c_h - 1) + 2, (r, s) = sigmoid(W x_i,h)"
    paper = "Chen et al. 2022, https://arxiv.org/abs/2110.13900"
    extrapolation = "clipped"
    relations = (Sequence,)
    offsets_only = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        num_buckets: int = 320,
        max_distance: int = 800,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_buckets(self.label, num_buckets, max_distance, bidirectional=True)
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.table = self._parameter(num_heads, num_buckets)
        # Not filled twice, so that a seed gives the same start as reset_parameters().
        self.gate = nn.utils.skip_init(nn.Linear, head_dim, 8, device=self.device, dtype=self._like.dtype)
        self.constant = self._parameter(num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        super().reset_parameters()
        self.gate.reset_parameters()
        nn.init.ones_(self.constant)

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        size = self.num_heads * self.head_dim
        if x is None or x.ndim != 3 or x.shape[1:] != (index.shape[0], size):
            given = "none" if x is None else f"shape {tuple(x.shape)}"
            raise ValueError(
                f"{self.label} needs the layer's input, x of shape (B, {index.shape[0]}, {size}), got {given}"
            )
        gates = wavlm_gates(x, self.gate.weight, self.gate.bias, self.constant)
        return Terms(b=self.table, g=gates, index=index.map(self._bucket, self.num_buckets))

    def _bucket(self, offsets: Tensor) -> Tensor:
        return t5_buckets(offsets, self.num_buckets, self.max_distance, bidirectional=True)

    def zero_(self) -> None:
        """Set the table to zero."""
        nn.init.zeros_(self.table)


def wavlm_gates(x: Tensor, weight: Tensor, bias: Tensor, constant: Tensor) -> Tensor:
    """The gate of each query, g_i = r (s c_h - 1) + 2.

    Args:
        x: (B, N, H D), the layer's input.
        weight: (8, D), of the linear map.
        bias: (8,), likewise.
        constant: c, (H,).

    Returns:
        (B, H, N), at least in float32.

    Example:
        >>> wavlm_gates(torch.randn(2, 10, 512), torch.zeros(8, 64), torch.zeros(8), torch.ones(8)).unique()
        tensor([1.7500])
    """
    dtype = torch.promote_types(torch.promote_types(x.dtype, constant.dtype), torch.float32)
    heads = rearrange(x, "b n (h d) -> b h n d", h=constant.shape[0]).to(dtype)
    with without_autocast(x):
        scores = nn.functional.linear(heads, weight.to(dtype), bias.to(dtype))
    r, s = scores.unflatten(-1, (2, 4)).sum(dim=-1).sigmoid().unbind(dim=-1)
    return r * (s * constant.to(dtype)[:, None] - 1.0) + 2.0
