"""CoPE: positions that are counted by the content of the keys."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_size
from relbias.terms import Terms


class CoPE(Encoding):
    """Contextual position encoding (https://arxiv.org/abs/2405.18719).

    A key counts as far as its gate is open, sigmoid(c q_i . k_j), and the position p_ij is the sum of the gates from
    key j to the query, at most `num_positions` - 1. The bias is q_i . E[p_ij], for a p between two integers
    interpolated linearly between their rows. It is not multiplied by c, as in the paper's listing.

    The method is made for causal attention. For a key after the query the sum is empty, so p = 0. Positions given with
    a call are not used: tokens count in their order. Padding at either end, documents one after the other and windows
    leave the positions right. Tokens that are hidden between a key and the query still count: padding in the middle,
    another document's tokens among a document's, holes of an `attn_mask`.

    The gates need the layer's q and k, which are made again from its input: RelativeAttention hands down both, other
    callers give `x=`, (B, M, H D), and `attention=`. This costs the projections to q and k and their product once
    more. x must hold all M tokens, which a cache and a context do not leave: both are refused.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        num_positions: the number of rows of the table.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        table: E, (`num_positions`, D), for all heads, drawn with a standard deviation of 0.02.

    Raises:
        ValueError: `num_positions` is not a positive integer, or the relation is clipped; in a call, x or attention is
            missing, or x has not all M tokens.

    Example:
        >>> import relbias as rb
        >>> attention = rb.RelativeAttention(64, num_heads=4, encoding="cope")
        >>> attention(torch.randn(2, 10, 64), is_causal=True).shape
        torch.Size([2, 10, 64])
    """

    name = "cope"
    formula = "b = q_i . E[p_ij], p_ij = sum_(t=j..i) sigmoid(c q_i . k_t)"
    paper = "Golovneva et al. 2024, https://arxiv.org/abs/2405.18719"
    extrapolation = "clipped"
    relations = (Sequence,)
    offsets_only = True
    makes_keys = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        num_positions: int = 64,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'cope' num_positions", num_positions, 1)
        if self.relation.max_distance is not None:
            raise ValueError(f"'cope' counts by content and takes Sequence() unclipped, got {self.relation!r}")
        self.num_positions = num_positions
        self.table = self._parameter(num_positions, head_dim)
        self.reset_parameters()

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        n, m = index.shape
        layer: Any = attention
        if x is None or not (hasattr(layer, "q_proj") and hasattr(layer, "k_proj")):
            raise ValueError(
                "'cope' makes q and k again: it needs the layer's input x and as attention a layer with q_proj and "
                f"k_proj, got x={'none' if x is None else tuple(x.shape)} and a {type(attention).__name__}"
            )
        if index.sign != 1:
            raise ValueError(
                "'cope' counts from the key to the query, which has no transposed index; give index, not index.T"
            )
        if x.ndim != 3 or x.shape[1] != m:
            raise ValueError(
                f"'cope' needs x with all {m} tokens that are keys, (B, {m}, size), got {tuple(x.shape)}; "
                "it does not work with a cache of tokens"
            )
        q = rearrange(layer.q_proj(x[:, m - n :]), "b n (h d) -> b h n d", d=self.head_dim)
        k = rearrange(layer.k_proj(x), "b m (h d) -> b h m d", d=self.head_dim)
        k = k.repeat_interleave(self.num_heads // k.shape[1], dim=1)
        dtype = torch.promote_types(q.dtype, torch.float32)
        scale = getattr(layer, "scale", None)  # the layer's own, but for None and "paper", which are the default
        scale = scale if isinstance(scale, int | float) else self.head_dim**-0.5
        # Converted once and not for each block of rows, so that the gradients of blocks add up before they are rounded.
        q, k, table = q.to(dtype), k.to(dtype), self.table.to(dtype)
        return Terms(b=lambda rows: _bias(q, k, table, scale, rows))

    def zero_(self) -> None:
        """Set the table to zero."""
        nn.init.zeros_(self.table)


def _bias(q: Tensor, k: Tensor, table: Tensor, scale: float, rows: slice) -> Tensor:
    """CoPE's bias of some rows.

    Args:
        q: (B, H, N, D), the last N of M positions.
        k: (B, H, M, D).
        table: E, (P, D).
        scale: c.
        rows: the queries asked for, n of N.

    Returns:
        (B, H, n, M).
    """
    n, m = q.shape[2], k.shape[2]
    queries = torch.arange(n, device=q.device)[rows] + (m - n)
    later = torch.arange(m, device=q.device) > queries[:, None]
    q = q[:, :, rows]
    gates = (q * scale @ k.mT).sigmoid().masked_fill(later, 0.0)
    positions = gates.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=table.shape[0] - 1)
    below, above = positions.detach().floor(), positions.detach().ceil()
    products = q @ table.mT
    low, high = products.gather(-1, below.long()), products.gather(-1, above.long())
    return low + (positions - below) * (high - low)
