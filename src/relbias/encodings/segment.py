"""XLNet's vectors of whether two tokens are in one segment."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Pairs, PairsIndex, Relation
from relbias.terms import Terms


class Segment(Encoding):
    """A learned key per code and head, s_ij = c (q_i . k_j + (q_i + w) . K_h[r_ij]) (https://arxiv.org/abs/1906.08237).

    In XLNet, beside the encoding `xlnet` of the offset, the codes say whether query and key are in the same segment:
    0 for the same, 1 for different ones.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Pairs, for XLNet Pairs(2).
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        keys: (H, R, D), XLNet's seg_embed by head, drawn with a standard deviation of 0.02.
        w: (H, D), the paper's w_segment and XLNet's r_s_bias, likewise.

    Example:
        >>> encoding = Segment(num_heads=8, head_dim=64, relation=Pairs(2))
        >>> segments = torch.tensor([[0, 0, 1], [0, 1, 1]])
        >>> different = (segments[:, :, None] != segments[:, None]).long()
        >>> encoding(Pairs(2)(different)).names
        ('K', 'w')
    """

    name = "segment"
    formula = "K_h[r], w"
    paper = "Yang et al. 2019, https://arxiv.org/abs/1906.08237"
    extrapolation = "none"
    relations = (Pairs,)

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
        self.keys = self._parameter(num_heads, self.relation.num_codes, head_dim)
        self.w = self._parameter(num_heads, head_dim)
        self.reset_parameters()

    def forward(self, index: PairsIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms(K=self.keys, w=self.w, index=index)

    def zero_(self) -> None:
        """Set the keys to zero; w, which is multiplied with them, stays."""
        nn.init.zeros_(self.keys)
