"""XLNet's offsets, in both directions of reading."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.encodings.transformer_xl import TransformerXL
from relbias.relations import Relation


class XLNet(TransformerXL):
    """Transformer-XL's keys, in XLNet (https://arxiv.org/abs/1906.08237); its other relation is `segment`.

    s_ij = c ((q_i + u) . k_j + (q_i + w_offset) . W_h R[i - j] + (q_i + w_segment) . K[same segment or not]) is the
    mapping {"offset": "xlnet", "segment": "segment"}. The content and the query stream are two calls of attention with
    the same keys and values and other queries and masks.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence.
        clamp_len: the distance from which on all count as this one, in positions, or None for no limit.
        bi_data: whether the second half of the batch holds sequences that are read backwards, so that their distances
            have the other sign. The encoding then needs the layer's input x.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        projection: (H, D, H D), XLNet's r by head, drawn with a standard deviation of 0.02.
        u: (H, D), XLNet's r_w_bias, likewise.
        w: (H, D), the paper's w_offset and XLNet's r_r_bias, likewise.

    Raises:
        ValueError: H D is odd, or `clamp_len` is negative or not an integer; in a call with `bi_data`, x is missing or
            its batch has no halves.

    Example:
        >>> import relbias as rb
        >>> attention = rb.RelativeAttention(
        ...     32, 4, {"offset": "xlnet", "segment": "segment"}, {"segment": rb.relations.Pairs(2)}
        ... )
        >>> segments = torch.tensor([[0, 0, 1], [0, 1, 1]])
        >>> different = (segments[:, :, None] != segments[:, None]).long()
        >>> attention(torch.randn(2, 3, 32), index={"segment": rb.relations.Pairs(2)(different)}).shape
        torch.Size([2, 3, 32])
    """

    name = "xlnet"
    formula = "K = W_h [sin((i - j) f), cos((i - j) f)], u, w; j - i in half of the batch with bi_data=True"
    paper = "Yang et al. 2019, https://arxiv.org/abs/1906.08237"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        clamp_len: int | None = None,
        bi_data: bool = False,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_heads, head_dim, relation, clamp_len=clamp_len, strength=strength, device=device, dtype=dtype
        )
        self.bi_data = bi_data

    def _table(self, distances: Tensor, x: Tensor | None) -> Tensor:
        if not self.bi_data:
            return self.keys(distances)
        if x is None or len(x) % 2:
            given = "no x" if x is None else f"an x with a batch of {len(x)}"
            raise ValueError(f"'xlnet' with bi_data=True needs the layer's input x with an even batch, got {given}")
        halves = (self.keys(distances), self.keys(-distances))
        return torch.cat([keys.expand(len(x) // 2, -1, -1, -1) for keys in halves])
