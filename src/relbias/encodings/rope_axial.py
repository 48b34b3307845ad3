"""Axial two-dimensional rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Relation
from relbias.terms import Rotation, Terms


class AxialRoPE(Encoding):
    """Axial rotary embedding of a patch grid (RoPE-ViT, https://arxiv.org/abs/2403.13298).

    The first D / 4 interleaved pairs turn by x * base^(-4 p / D), the next D / 4 by y * base^(-4 p / D); prefix tokens
    do not turn. No parameters, any size of grid.

    Args:
        num_heads: H.
        head_dim: D, a multiple of 4.
        relation: a Grid without max_distance.
        base: theta, the base of the frequencies.
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: D is not a multiple of 4, or the relation is clipped.

    Example:
        >>> encoding = AxialRoPE(num_heads=3, head_dim=64, relation=Grid(14, 14, prefix_tokens=1))
        >>> encoding(Grid(14, 14, prefix_tokens=1)()).rotation.q_angles.shape
        torch.Size([1, 1, 197, 32])
    """

    name = "rope_axial"
    formula = "half of the pairs turned by x base^(-4 n / D), half by y"
    paper = "Heo et al. 2024, https://arxiv.org/abs/2403.13298"
    relations = (Grid,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        base: float = 100.0,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if head_dim % 4:
            raise ValueError(
                f"'rope_axial' splits a head into pairs for x and y: D must be a multiple of 4, got {head_dim}"
            )
        if base <= 0:
            raise ValueError(f"'rope_axial' needs a positive base, got {base}")
        if self.relation.max_distance is not None:
            raise ValueError(f"'rope_axial' turns by places and takes a Grid unclipped, got {self.relation!r}")
        self.base = base

    def forward(self, index: GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        quarter = self.head_dim // 4
        frequencies = self.base ** -(torch.arange(quarter, dtype=torch.float64, device=self.device) / quarter)
        places = index.coordinates(self.device).flip(-1)  # (x, y)
        angles = (index.sign * places[:, :, None] * frequencies).flatten(1)
        angles = torch.nn.functional.pad(angles, (0, 0, index.prefix_tokens, 0))[None, None]
        return Terms(rotation=Rotation(angles, angles, interleaved=True))
