"""YaRN: RoPE that slows only its slow pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relbias.encodings.rope import RoPE
from relbias.relations import Relation
from relbias.relations.base import check_number, check_size


class YaRN(RoPE):
    """RoPE with slow pairs interpolated and fast ones kept (https://arxiv.org/abs/2309.00071).

    With f_p = base^(-2 p / d) pair p turns by position times g_p f_p + (1 - g_p) f_p / factor. The weight g_p falls
    linearly from 1 to 0 between the pairs that make beta_fast and beta_slow turns within the length of training L0.
    The turned dimensions of q and of k are multiplied by the attention factor (0.1 ln factor + 1).

    DeepSeek's variant multiplies them by (0.1 mscale ln factor + 1) / (0.1 mscale_all_dim ln factor + 1) instead;
    its models also multiply the scale c by the square of the denominator, which is attention's argument `scale`.
    transformers ignores `mscale` unless `mscale_all_dim` is given too.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        factor: how many times the length of training is wanted, at least 1.
        original_max_position_embeddings: L0, in tokens.
        beta_fast: pairs that turn more often than this within L0 are kept.
        beta_slow: pairs that turn less often than this within L0 are slowed by `factor`.
        attention_factor: in place of the one computed; None for that one.
        mscale: see above.
        mscale_all_dim: see above.
        truncate: whether the ramp begins and ends at whole pairs.
        base: theta, the base of the frequencies, above 1.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + d / 2).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: `factor` or L0 is below 1, `beta_fast` is below `beta_slow`, `attention_factor` is not
            above 0, an mscale is below 0, or as in :class:`RoPE`.

    Example:
        >>> encoding = YaRN(num_heads=8, head_dim=64, factor=4.0)
        >>> encoding(encoding.relation(9)).rotation.factor
        1.138629...
    """

    name = "rope_yarn"
    formula = "q and k turned by p (g f + (1 - g) f / factor), f = base^(-2 n / d), and times 0.1 ln factor + 1"
    paper = "Peng et al. 2023, https://arxiv.org/abs/2309.00071"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        factor: float = 4.0,
        original_max_position_embeddings: int = 4096,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        attention_factor: float | None = None,
        mscale: float = 1.0,
        mscale_all_dim: float = 0.0,
        truncate: bool = True,
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
        check_number(f"{self.label} base", base, 1, above=True)
        check_number(f"{self.label} beta_slow", beta_slow, 0, above=True)
        check_number(f"{self.label} beta_fast", beta_fast, beta_slow)
        check_number(f"{self.label} mscale", mscale, 0)
        check_number(f"{self.label} mscale_all_dim", mscale_all_dim, 0)
        self.factor, self.original_max_position_embeddings = factor, original_max_position_embeddings
        self.beta_fast, self.beta_slow, self.truncate = beta_fast, beta_slow, truncate
        computed = self._amplitude(mscale) / self._amplitude(mscale_all_dim)
        self.attention_factor = computed if attention_factor is None else attention_factor
        check_number(f"{self.label} attention_factor", self.attention_factor, 0, above=True)

    def _amplitude(self, mscale: float) -> float:
        return 0.1 * mscale * math.log(self.factor) + 1.0

    def _pair_of(self, turns: float) -> float:
        """The pair that makes so many turns within L0, between two pairs where need be."""
        wanted = self.original_max_position_embeddings / (2 * math.pi * turns)  # 1 / frequency
        return self.rotary_dim * math.log(wanted) / (2 * math.log(self.base))

    def frequencies(self, keys: Tensor) -> Tensor:
        first, last = self._pair_of(self.beta_fast), self._pair_of(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.rotary_dim - 1)
        width = max(last - first, 0.001)  # a step, where the ramp has no width
        frequencies = super().frequencies(keys)
        pairs = torch.arange(len(frequencies), dtype=torch.float64, device=keys.device)
        slowed = ((pairs - first) / width).clamp(0, 1)
        return frequencies * (1 - slowed) + frequencies / self.factor * slowed
