"""Fixed sinusoids added at the input."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.encodings.absolute import AbsoluteEncoding, token_coordinates
from relbias.relations import Grid, GridIndex, Relation, SequenceIndex


class Sinusoidal(AbsoluteEncoding):
    """Sinusoids of the absolute position, added to the tokens (https://arxiv.org/abs/1706.03762); no parameters.

    PE[2 k] = sin(position / base^(2 k / d)), PE[2 k + 1] = cos(position / base^(2 k / d)) with d = H D on a sequence.
    On a grid the first half of the H D dimensions does so for y, the second half for x, each with d = H D / 2; prefix
    tokens get nothing.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence or a Grid.
        base: of the frequencies.
        strength: the start of a learned factor per head, or None for no factor.
        device: where the sinusoids are computed.
        dtype: of the strength.

    Raises:
        ValueError: H D is not a multiple of 2, or of 4 on a grid.

    Example:
        >>> encoding = Sinusoidal(num_heads=2, head_dim=2)
        >>> encoding.embed(torch.zeros(1, 2, 4))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    name = "sinusoidal"
    formula = "x + [sin(p f_n), cos(p f_n)] at the input"
    paper = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        base: float = 10000.0,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        unit = 4 if isinstance(self.relation, Grid) else 2
        if self.dim % unit:
            raise ValueError(f"'sinusoidal' needs tokens whose size is a multiple of {unit}, got {self.dim}")
        self.base = base

    def positions(self, index: SequenceIndex | GridIndex) -> Tensor:
        coordinates, prefix_tokens = token_coordinates(index, self.device)
        size = self.dim // coordinates.shape[-1]
        exponents = torch.arange(0, size, 2, dtype=torch.float64, device=coordinates.device) / size
        angles = coordinates[..., None] * self.base**-exponents
        vectors = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(2)
        return torch.nn.functional.pad(vectors, (0, 0, prefix_tokens, 0))
