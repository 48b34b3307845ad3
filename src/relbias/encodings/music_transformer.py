"""Music Transformer's learned keys, one for each distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import occurring_offsets
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_size
from relbias.terms import Terms


class MusicTransformer(Encoding):
    """A learned vector per head and distance to the past, added to the keys (https://arxiv.org/abs/1809.04281).

    s_ij = c q_i . (k_j + K_h[i - j]), what the paper's skewing of q E^T gives at and below the diagonal. The distances
    are not clipped: a farther key has no vector, nor has a key after the query, which the paper's causal mask hides
    (`is_causal=True`).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence. With a limit of its own, farther distances are clipped to that limit.
        max_distance: the largest distance with a vector, in positions; the longest context but one.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        keys: (H, max_distance + 1, D), the distances 0, 1, ... in this order (the paper's E in reverse), drawn with a
            standard deviation of 0.02.

    Raises:
        ValueError: `max_distance` is negative or not an integer.

    Example:
        >>> encoding = MusicTransformer(num_heads=8, head_dim=64, max_distance=511)
        >>> encoding(Sequence()(100)).names
        ('K',)
        >>> encoding.keys.shape
        torch.Size([8, 512, 64])
    """

    name = "music_transformer"
    formula = "K_h[i - j] where 0 <= i - j <= max_distance"
    paper = "Huang et al. 2019, https://arxiv.org/abs/1809.04281"
    extrapolation = "none"
    relations = (Sequence,)
    offsets_only = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        max_distance: int = 2047,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'music_transformer' max_distance", max_distance, 0)
        limit = self.relation.max_distance
        self.max_distance = max_distance if limit is None else min(max_distance, limit)
        self.keys = self._parameter(num_heads, self.max_distance + 1, head_dim)
        self.reset_parameters()

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        # One more than has a vector stands for all that is farther.
        offsets, rows = occurring_offsets(index.clip(self.max_distance + 1), self.device)
        none = self.max_distance + 1
        places = torch.where(offsets > 0, none, -offsets)
        keys = nn.functional.pad(self.keys, (0, 0, 0, 1)).index_select(1, places)
        return Terms(K=keys, index=rows)

    def zero_(self) -> None:
        """Set the keys to zero."""
        nn.init.zeros_(self.keys)
