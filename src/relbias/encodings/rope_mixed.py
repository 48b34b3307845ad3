"""Learned two-dimensional rotary position embedding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Relation
from relbias.relations.base import check_number
from relbias.terms import Rotation, Terms


class MixedRoPE(Encoding):
    """Rotary embedding of a patch grid in learned directions, RoPE-Mixed (RoPE-ViT, https://arxiv.org/abs/2403.13298).

    The interleaved pair p of head h turns by x frequencies[0, h, p] + y frequencies[1, h, p]; prefix tokens do not
    turn. Any size of grid. The start has the magnitudes m_n = base^(-4 n / D) twice, in two directions at right
    angles that are random for each head: m (cos a, sin a) for the first D / 4 pairs, m (-sin a, cos a) for the others.

    Args:
        num_heads: H.
        head_dim: D, a multiple of 4.
        relation: a Grid without max_distance.
        base: theta, the base of the magnitudes at the start.
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters; the angles are float64.

    Attributes:
        frequencies: (2, H, D / 2), in radians per patch along x and along y.

    Raises:
        ValueError: D is not a multiple of 4, `base` is not above 0, or the relation is clipped.

    Example:
        >>> encoding = MixedRoPE(num_heads=3, head_dim=64, relation=Grid(14, 14, prefix_tokens=1))
        >>> encoding(Grid(14, 14, prefix_tokens=1)()).rotation.q_angles.shape
        torch.Size([1, 3, 197, 32])
    """

    name = "rope_mixed"
    formula = "pair n of head h turned by x f_hn + y g_hn, f and g learned"
    paper = "Heo et al. 2024, https://arxiv.org/abs/2403.13298"
    relations = (Grid,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        base: float = 10.0,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if head_dim % 4:
            raise ValueError(f"{self.label} has pairs in two directions: D must be a multiple of 4, got {head_dim}")
        check_number(f"{self.label} base", base, 0, above=True)
        if self.relation.max_distance is not None:
            raise ValueError(f"{self.label} turns by places and takes a Grid unclipped, got {self.relation!r}")
        self.base = base
        self.frequencies = self._parameter(2, num_heads, head_dim // 2)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new directions."""
        super().reset_parameters()
        quarter, device = self.head_dim // 4, self.device
        magnitudes = self.base ** -(torch.arange(quarter, dtype=torch.float64, device=device) / quarter)
        angle = 2 * math.pi * torch.rand(self.num_heads, 1, dtype=torch.float64, device=device)
        cos, sin = angle.cos() * magnitudes, angle.sin() * magnitudes
        with torch.no_grad():
            self.frequencies.copy_(torch.stack((torch.cat((cos, -sin), dim=-1), torch.cat((sin, cos), dim=-1))))

    def forward(self, index: GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        places = (index.sign * index.coordinates(self.device)).view(index.batch_heads[0], 1, -1, 2)
        along_x, along_y = self.frequencies.double()
        angles = places[..., 1:] * along_x[:, None] + places[..., :1] * along_y[:, None]  # (B or 1, heads, n, D / 2)
        angles = torch.nn.functional.pad(angles, (0, 0, index.prefix_tokens, 0))
        return Terms(rotation=Rotation(angles, angles, interleaved=True))
