"""RoPE with a base that grows with the sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.encodings.rope import RoPE, length_of
from relbias.relations import Relation
from relbias.relations.base import check_number, check_size


class DynamicNTKRoPE(RoPE):
    """RoPE whose base grows with the length of the call, "dynamic NTK" (https://arxiv.org/abs/2309.00071, section 3.3).

    Beyond the length of training L0 the base is base (factor L / L0 - (factor - 1))^(d / (d - 2)); up to L0 it is
    the plain one. L is the largest position of an item's keys + 1. While decoding with a cache all keys turn by the
    base of the step, for the cache keeps them unturned: step t of a layer equals the last row of its full forward on
    t tokens. Padding without `positions` counts as tokens.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        factor: how fast the base grows beyond L0, at least 1.
        original_max_position_embeddings: L0, in tokens.
        base: theta, the base of the frequencies in training.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even and at least 4. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + d / 2).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: `factor` or L0 is below 1, a single pair turns, or as in :class:`RoPE`.

    Example:
        >>> encoding = DynamicNTKRoPE(num_heads=8, head_dim=64, original_max_position_embeddings=8)
        >>> short, long = (encoding(encoding.relation(n)).rotation.k_angles[0, 0, 5] for n in (8, 16))
        >>> bool((long[1:] < short[1:]).all())  # position 5 turns less in the longer sequence
        True
    """

    name = "rope_dynamic"
    formula = "q and k turned as in rope, with the base base (factor L / L0 - (factor - 1))^(d / (d - 2)) beyond L0"
    paper = "Peng et al. 2023, https://arxiv.org/abs/2309.00071"
    offsets_only = False

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        factor: float = 4.0,
        original_max_position_embeddings: int = 4096,
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
        check_size(f"{self.label} original_max_position_embeddings", original_max_position_embeddings, 1)
        check_size(f"{self.label} rotary_dim", self.rotary_dim, 4)
        self.factor, self.original_max_position_embeddings = factor, original_max_position_embeddings

    def frequencies(self, keys: Tensor) -> Tensor:
        d = self.rotary_dim
        excess = (length_of(keys).double() / self.original_max_position_embeddings - 1).clamp(min=0)
        return self.powers(self.base * (1 + self.factor * excess) ** (d / (d - 2)), keys.device)
