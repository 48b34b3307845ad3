"""RoPE with linearly scaled positions."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.encodings.rope import RoPE
from relbias.relations import Relation
from relbias.relations.base import check_number


class LinearRoPE(RoPE):
    """RoPE with every position divided by a factor, "position interpolation" (https://arxiv.org/abs/2306.15595).

    Pair p turns by the angle (position / factor) base^(-2 p / d).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        factor: how many times the length of training is wanted, at least 1.
        base: theta, the base of the frequencies.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + d / 2).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: `factor` is below 1, or as in :class:`RoPE`.

    Example:
        >>> encoding = LinearRoPE(num_heads=8, head_dim=64, factor=4.0)
        >>> float(encoding(encoding.relation(9)).rotation.q_angles[0, 0, 8, 0])  # position 8
        2.0
    """

    name = "rope_linear"
    formula = "q and k turned by the angles p base^(-2 n / d) / factor of position p"
    paper = "Chen et al. 2023, https://arxiv.org/abs/2306.15595"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        factor: float = 4.0,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_heads,
            head_dim,
            relation,
            base=base,
            rotary_dim=rotary_dim,
            interleaved=interleaved,
            strength=strength,
            device=device,
            dtype=dtype,
        )
        check_number(f"{self.label} factor", factor, 1)
        self.factor = factor

    def frequencies(self, keys: Tensor) -> Tensor:
        return super().frequencies(keys) / self.factor
