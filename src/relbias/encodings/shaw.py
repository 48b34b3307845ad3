"""Shaw's relative key and value vectors."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Relation, Sequence, SequenceIndex
from relbias.relations.base import check_size
from relbias.terms import Terms


class Shaw(Encoding):
    """A learned vector per clipped offset, added to the keys, s_ij = c q_i . (k_j + K[r_ij]) (https://arxiv.org/abs/1803.02155).

    With `values` another vector per offset is added to the values, o_i = sum_j a_ij (v_j + V[r_ij]). The tables are
    shared by all heads. On a grid one vector stands for the pair (dy, dx), each clipped, and for each kind of pair
    with a prefix token.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence or a Grid.
        max_distance: the distance at which offsets are clipped, in positions or, along each axis, in patches.
        values: whether to have the table V.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        keys: (1, R, D), drawn with a standard deviation of 0.02.
        values: (1, R, D), likewise, or None.

    Raises:
        ValueError: `max_distance` is negative or not an integer.

    Example:
        >>> encoding = Shaw(num_heads=8, head_dim=64, max_distance=16, values=True)
        >>> encoding(Sequence()(10)).names
        ('K', 'V')
        >>> encoding.keys.shape
        torch.Size([1, 33, 64])
    """

    name = "shaw"
    formula = "K[clip(j - i)], with values=True also V[clip(j - i)]"
    paper = "Shaw et al. 2018, https://arxiv.org/abs/1803.02155"
    extrapolation = "clipped"
    relations = (Sequence, Grid)
    offsets_only = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        max_distance: int = 16,
        values: bool = False,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'shaw' max_distance", max_distance, 0)
        limit = self.relation.max_distance
        self.max_distance = max_distance if limit is None else min(max_distance, limit)
        size = replace(self.relation, max_distance=self.max_distance).num_codes
        self.keys = self._parameter(1, size, head_dim)
        self.values = self._parameter(1, size, head_dim) if values else None
        self.reset_parameters()

    def forward(
        self, index: SequenceIndex | GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None
    ) -> Terms:
        return Terms(K=self.keys, V=self.values, index=index.clip(self.max_distance))

    def zero_(self) -> None:
        """Set the tables to zero."""
        nn.init.zeros_(self.keys)
        if self.values is not None:
            nn.init.zeros_(self.values)
