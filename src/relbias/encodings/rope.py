"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_number, check_size
from relbias.terms import Rotation, Terms


class RoPE(Encoding):
    """Rotary position embedding (https://arxiv.org/abs/2104.09864).

    Pair p of q and of k turns by the angle position * base^(-2 p / d); d is `rotary_dim`. The product of a turned
    query and a turned key depends on their offset alone. No parameters. Its scalings for long contexts are encodings
    of their own: `rope_linear`, `rope_ntk`, `rope_dynamic`, `rope_yarn`, `rope_llama3` and `rope_longrope`.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        base: theta, the base of the frequencies.
        rotary_dim: d, how many of the D dimensions turn, the first ones; even. All by default.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), as in the paper, or (p, p + d / 2), as in Llama.
        strength: the start of a learned factor of the angles per head, or None for no factor.
        device: where the angles are computed.
        dtype: of the strength.

    Raises:
        ValueError: `rotary_dim` is odd or above D, `base` is not above 0, or the relation is clipped.

    Example:
        >>> encoding = RoPE(num_heads=8, head_dim=64, rotary_dim=32)
        >>> encoding(Sequence()(10)).rotation.q_angles.shape
        torch.Size([1, 1, 10, 16])
    """

    name = "rope"
    formula = "q and k turned by the angles p base^(-2 n / d) of position p"
    paper = "Su et al. 2021, https://arxiv.org/abs/2104.09864"
    relations = (Sequence,)
    offsets_only = True
    attention_factor: float = 1.0
    """By which the turned dimensions of q and of k are multiplied."""

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        check_size(f"{self.label} rotary_dim", rotary_dim, 2)
        if rotary_dim % 2 or rotary_dim > head_dim:
            raise ValueError(
                f"{self.label} turns pairs of dimensions: rotary_dim must be even, from 2 to the head size {head_dim}, "
                f"got {rotary_dim}"
            )
        check_number(f"{self.label} base", base, 0, above=True)
        if self.relation.num_codes is not None:
            raise ValueError(f"{self.label} turns by positions and takes Sequence() unclipped, got {self.relation!r}")
        self.base, self.rotary_dim, self.interleaved = base, rotary_dim, interleaved

    def frequencies(self, keys: Tensor) -> Tensor:
        """The angle per position of each pair, in radians, made anew from the configuration.

        Args:
            keys: (B or 1, M) int64, the positions of the keys, for what depends on the length.

        Returns:
            (d / 2,) float64, or (B or 1, 1, 1, d / 2) where it differs by item.
        """
        return self.powers(self.base, keys.device)

    def powers(self, base: float | Tensor, device: torch.device) -> Tensor:
        """The frequencies base^(-2 p / d), (..., d / 2) float64; of a base of shape (..., 1), or a number."""
        return base ** -(torch.arange(0, self.rotary_dim, 2, dtype=torch.float64, device=device) / self.rotary_dim)

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        queries, keys = index.positions(self.device)
        frequencies = self.frequencies(index.sign * keys)
        q_angles, k_angles = queries[:, None, :, None] * frequencies, keys[:, None, :, None] * frequencies
        return Terms(rotation=Rotation(q_angles, k_angles, self.interleaved, self.attention_factor))


def length_of(keys: Tensor) -> Tensor:
    """The largest position of an item's keys + 1, at least 0.

    Args:
        keys: (B or 1, M) int64.

    Returns:
        (B or 1, 1, 1, 1) int64.
    """
    return torch.nn.functional.pad(keys, (1, 0), value=-1).amax(dim=1)[:, None, None, None] + 1
