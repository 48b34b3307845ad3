"""RoPE as Llama 3.1 scales it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relbias.encodings.rope import RoPE
from relbias.relations import Relation
from relbias.relations.base import check_number, check_size


class Llama3RoPE(RoPE):
    """RoPE with long wavelengths stretched and short ones kept, as in Llama 3.1 (https://arxiv.org/abs/2407.21783).

    With f_p = base^(-2 p / d) and n_p = L0 f_p / (2 pi), its turns within the length of training L0, pair p turns by
    position times f_p where n_p > high_freq_factor, f_p / factor where n_p < low_freq_factor, and between them
    (1 - a) f_p / factor + a f_p with a = (n_p - low_freq_factor) / (high_freq_factor - low_freq_factor).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        factor: how many times slower the slow pairs turn, at least 1.
        low_freq_factor: in turns within L0, see above.
        high_freq_factor: in turns within L0, see above.
        original_max_position_embeddings: L0, in tokens.
        base: theta, the base of the frequencies.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + d / 2).
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: `factor` or L0 is below 1, `high_freq_factor` is not above `low_freq_factor`, or as in
            :class:`RoPE`.

    Example:
        >>> encoding = Llama3RoPE(num_heads=8, head_dim=64)
        >>> angles = encoding(encoding.relation(9)).rotation.q_angles[0, 0, 8]
        >>> float(angles[0]), round(float(angles[-1]) / (8 * 500000 ** (-62 / 64)), 6)  # position 8
        (8.0, 0.125)
    """

    name = "rope_llama3"
    formula = "q and k turned by p f or p f / factor or between, f = base^(-2 n / d), by the turns f makes within L0"
    paper = "Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        factor: float = 8.0,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        original_max_position_embeddings: int = 8192,
        base: float = 500000.0,
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
        check_number(f"{self.label} low_freq_factor", low_freq_factor, 0)
        check_number(f"{self.label} high_freq_factor", high_freq_factor, low_freq_factor, above=True)
        self.factor, self.original_max_position_embeddings = factor, original_max_position_embeddings
        self.low_freq_factor, self.high_freq_factor = low_freq_factor, high_freq_factor

    def frequencies(self, keys: Tensor) -> Tensor:
        frequencies = super().frequencies(keys)
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        kept = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies
