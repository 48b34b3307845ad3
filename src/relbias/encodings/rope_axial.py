"""Axial rotary position embedding of grids and volumes."""

from __future__ import annotations

from collections.abc import Sequence as Numbers

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Relation, Volume, VolumeIndex
from relbias.relations.base import check_number
from relbias.terms import Rotation, Terms


class AxialRoPE(Encoding):
    """Axial rotary embedding of a grid (RoPE-ViT, https://arxiv.org/abs/2403.13298) or a volume.

    On a grid the first D / 4 interleaved pairs turn by x * base^(-4 p / D), the next D / 4 by y * base^(-4 p / D). On a
    volume it is a third each for x, y and z, P = D // 6 pairs that turn by base^(-p / P) per patch; up to four
    dimensions are left and stay. Prefix tokens do not turn. No parameters, any size of grid or volume.

    Args:
        num_heads: H.
        head_dim: D, a multiple of 4 for a grid, at least 6 for a volume.
        relation: a Grid or a Volume without max_distance.
        base: theta, the base of the frequencies; or one for each axis, in the order of the relation's sizes, such as
            (frequency, time) for a spectrogram on Grid(frequency, time).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: D does not fit, a base is not positive or of another number than the axes, or the relation is
            clipped.

    Example:
        >>> encoding = AxialRoPE(num_heads=3, head_dim=64, relation=Grid(14, 14, prefix_tokens=1))
        >>> encoding(Grid(14, 14, prefix_tokens=1)()).rotation.q_angles.shape
        torch.Size([1, 1, 197, 32])
        >>> video = Volume(8, 14, 14)
        >>> AxialRoPE(num_heads=3, head_dim=64, relation=video)(video()).rotation.q_angles.shape
        torch.Size([1, 1, 1568, 30])
    """

    name = "rope_axial"
    formula = "pairs turned by x base^(-4 n / D), as many by y, on a volume also by z"
    paper = "Heo et al. 2024, https://arxiv.org/abs/2403.13298"
    relations = (Grid, Volume)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        base: float | Numbers[float] = 100.0,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if isinstance(self.relation, Grid) and head_dim % 4:
            raise ValueError(
                f"'rope_axial' splits a head into pairs for x and y: D must be a multiple of 4, got {head_dim}"
            )
        if isinstance(self.relation, Volume) and head_dim < 6:
            raise ValueError(
                f"'rope_axial' splits a head into pairs for x, y and z: D must be at least 6, got {head_dim}"
            )
        axes = len(self.relation.axes)
        self.bases = list(base) if isinstance(base, Numbers) else [base] * axes
        if len(self.bases) != axes:
            raise ValueError(f"'rope_axial' needs one base, or one for each of {self.relation.axes}; got {base}")
        for number in self.bases:
            check_number("'rope_axial' base", number, 0, above=True)
        if self.relation.max_distance is not None:
            raise ValueError(
                f"'rope_axial' turns by places and takes a {type(self.relation).__name__} unclipped, "
                f"got {self.relation!r}"
            )

    def forward(
        self, index: GridIndex | VolumeIndex, *, x: Tensor | None = None, attention: nn.Module | None = None
    ) -> Terms:
        pairs = self.head_dim // (2 * len(self.bases))
        bases = torch.tensor(self.bases, dtype=torch.float64, device=self.device)
        frequencies = bases[:, None] ** -(torch.arange(pairs, dtype=torch.float64, device=self.device) / pairs)
        places = index.sign * index.coordinates(self.device)
        angles = (places[..., None] * frequencies).flip(-2).flatten(-2)  # x first
        angles = torch.nn.functional.pad(angles, (0, 0, index.prefix_tokens, 0))
        angles = angles.view(index.batch_heads[0], 1, *angles.shape[-2:])
        return Terms(rotation=Rotation(angles, angles, interleaved=True))
