"""Sandwich's biases: products of sinusoids of two positions."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.encodings.offset_bias import OffsetBias
from relbias.relations import Relation
from relbias.relations.base import check_size


class Sandwich(OffsetBias):
    """The product of the sinusoids of two positions as a bias (https://arxiv.org/abs/2212.10356); no parameters.

    b_ij = H / (8 (h + 1)) sum_n cos(|j - i| / 10000^(2 n / dim)), n = 0 ... dim / 2 - 1, heads h counted from 0. The
    sum is dim / 2 at distance 0. (Some ports begin at n = 1, which is another bias.)

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        dim: twice the number of frequencies, even; independent of D.
        strength: the start of a learned factor per head, or None for no factor.
        device: where the biases are computed.
        dtype: of the strength.

    Raises:
        ValueError: `dim` is not a positive even number, or the relation is clipped.

    Example:
        >>> from relbias.relations import Sequence
        >>> encoding = Sandwich(num_heads=8, head_dim=64)
        >>> encoding(Sequence()(2)).entries[0].b[0]  # head 0, for the offsets -1, 0, 1
        tensor([62.0937, 64.0000, 62.0937], dtype=torch.float64)
    """

    name = "sandwich"
    formula = "b = H / (8 (h + 1)) sum_n cos(|j - i| / 10000^(2 n / dim))"
    paper = "Chi et al. 2023, https://arxiv.org/abs/2212.10356"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        dim: int = 128,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'sandwich' dim", dim, 2)
        if dim % 2:
            raise ValueError(f"'sandwich' has a frequency for two dimensions: dim must be even, got {dim}")
        self.dim = dim

    def bias(self, offsets: Tensor) -> Tensor:
        distances = offsets.abs().double()
        total = torch.zeros_like(distances)
        for n in range(self.dim // 2):  # one frequency at a time: nothing has as many numbers as offsets times dim
            total = total + torch.cos(distances * 10000.0 ** (-2 * n / self.dim))
        heads = torch.arange(1, self.num_heads + 1, dtype=torch.float64, device=offsets.device)
        return (self.num_heads / (8 * heads)).view(-1, *[1] * offsets.ndim) * total
