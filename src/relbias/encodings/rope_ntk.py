"""RoPE with an enlarged base."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.encodings.rope import RoPE
from relbias.relations import Relation
from relbias.relations.base import check_number, check_size


class NTKRoPE(RoPE):
    """RoPE with a base enlarged for longer sequences, "NTK-aware" (https://arxiv.org/abs/2309.00071, section 3.1).

    The base is base factor^(d / (d - 2)), so that the slowest pair turns `factor` times slower and the fastest one as
    before.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        factor: how many times the length of training is wanted, at least 1.
        base: theta, the base of the frequencies in training.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even and at least 4. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + d / 2).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: `factor` is below 1, a single pair turns, or as in :class:`RoPE`.

    Example:
        >>> encoding = NTKRoPE(num_heads=8, head_dim=64, factor=4.0)
        >>> angles = encoding(encoding.relation(9)).rotation.q_angles[0, 0, 8]
        >>> float(angles[0]), round(float(angles[-1]) / (8 * 10000 ** (-62 / 64)), 6)  # position 8
        (8.0, 0.25)
    """

    name = "rope_ntk"
    formula = "q and k turned as in rope, with the base base factor^(d / (d - 2))"
    paper = "Peng et al. 2023, https://arxiv.org/abs/2309.00071"

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
        check_size(f"{self.label} rotary_dim", self.rotary_dim, 4)
        self.factor = factor

    def frequencies(self, keys: Tensor) -> Tensor:
        d = self.rotary_dim
        return self.powers(self.base * self.factor ** (d / (d - 2)), keys.device)
