"""LongRoPE: a factor for each pair, of two lists."""

from __future__ import annotations

import math
from collections.abc import Sequence as Numbers

import torch
from torch import Tensor

from relbias.encodings.rope import RoPE, length_of
from relbias.relations import Relation
from relbias.relations.base import check_number, check_size


class LongRoPE(RoPE):
    """RoPE with a factor of its own for every pair, found by a search (https://arxiv.org/abs/2402.13753).

    Pair p turns by position times base^(-2 p / d) / l_p, with l from `long_factor` where the length L is above that
    of training, L0, else from `short_factor`. L is the largest position of an item's keys + 1, and padding without
    `positions` counts as tokens. The turned dimensions of q and of k are multiplied by the attention factor
    sqrt(1 + ln factor / ln L0), whatever L is. A cache keeps keys unturned, so that they all turn by the list of the
    step.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        short_factor: d / 2 numbers above 0; None for ones.
        long_factor: d / 2 numbers above 0; None for `factor` everywhere, where the search begins.
        factor: how many times the length of training is wanted, at least 1.
        original_max_position_embeddings: L0, in tokens.
        attention_factor: in place of the one computed; None for that one.
        base: theta, the base of the frequencies.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + d / 2).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: a list has another length or a number that is not above 0, `factor` is below 1 or L0 below 2,
            `attention_factor` is not above 0, or as in :class:`RoPE`.

    Example:
        >>> encoding = LongRoPE(num_heads=8, head_dim=4, long_factor=[1.0, 2.0], original_max_position_embeddings=8)
        >>> for n in (8, 9):
        ...     print(encoding(encoding.relation(n)).rotation.q_angles[0, 0, 5])
        tensor([5.0000, 0.0500], dtype=torch.float64)
        tensor([5.0000, 0.0250], dtype=torch.float64)
    """

    name = "rope_longrope"
    formula = "q and k turned by p base^(-2 n / d) / l_n of one of two lists, and times sqrt(1 + ln factor / ln L0)"
    paper = "Ding et al. 2024, https://arxiv.org/abs/2402.13753"
    offsets_only = False

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        short_factor: Numbers[float] | None = None,
        long_factor: Numbers[float] | None = None,
        factor: float = 32.0,
        original_max_position_embeddings: int = 4096,
        attention_factor: float | None = None,
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
        check_size(f"{self.label} original_max_position_embeddings", original_max_position_embeddings, 2)
        pairs = self.rotary_dim // 2
        self.short_factor = [1.0] * pairs if short_factor is None else short_factor
        self.long_factor = [float(factor)] * pairs if long_factor is None else long_factor
        for name, numbers in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
            if not isinstance(numbers, Numbers) or len(numbers) != pairs:
                raise ValueError(f"{self.label} needs a {name} of {pairs} numbers above 0, got {numbers}")
            for number in numbers:
                check_number(f"{self.label} {name}", number, 0, above=True)
        self.original_max_position_embeddings = original_max_position_embeddings
        computed = math.sqrt(1 + math.log(factor) / math.log(original_max_position_embeddings))
        self.attention_factor = computed if attention_factor is None else attention_factor
        check_number(f"{self.label} attention_factor", self.attention_factor, 0, above=True)

    def frequencies(self, keys: Tensor) -> Tensor:
        short, long = (
            torch.tensor(numbers, dtype=torch.float64, device=keys.device)
            for numbers in (self.short_factor, self.long_factor)
        )
        is_long = length_of(keys) > self.original_max_position_embeddings
        return super().frequencies(keys) / torch.where(is_long, long, short)
