"""Shaw's relative vectors on a grid with a table for each axis."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Relation
from relbias.relations.base import check_size, num_prefix_codes
from relbias.terms import Entry, Terms


class AxialShaw(Encoding):
    """A learned vector per clipped dy and one per clipped dx, added to the keys (https://arxiv.org/abs/1904.09925).

    s_ij = c q_i . (k_j + rows[dy] + columns[dx]), where `shaw` has a vector for each pair (dy, dx). With `values`
    o_i = sum_j a_ij (v_j + value_rows[dy] + value_columns[dx]). The tables are shared by all heads. Each kind of pair
    with a prefix token has a vector in `rows` and adds nothing from `columns`.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Grid, of which calls may have any size.
        max_distance: m, the distance at which offsets are clipped along each axis, in patches.
        values: whether to have tables for the values.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        rows: (1, 2 m + 1 + 2 P + P^2, D), drawn with a standard deviation of 0.02.
        columns: (1, 2 m + 1, D), likewise.
        value_rows: like `rows`, or None.
        value_columns: like `columns`, or None.

    Raises:
        ValueError: `max_distance` is negative or not an integer.

    Example:
        >>> encoding = AxialShaw(num_heads=6, head_dim=64, relation=Grid(14, 14), max_distance=13)
        >>> encoding(Grid(14, 14)()).names
        ('K',)
        >>> encoding.rows.shape, encoding.columns.shape
        (torch.Size([1, 27, 64]), torch.Size([1, 27, 64]))
    """

    name = "shaw_axial"
    formula = "K[clip(dy)] + K'[clip(dx)], with values=True also V[clip(dy)] + V'[clip(dx)]"
    paper = "Bello et al. 2019, https://arxiv.org/abs/1904.09925"
    extrapolation = "clipped"
    relations = (Grid,)

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
        check_size("'shaw_axial' max_distance", max_distance, 0)
        limit = self.relation.max_distance
        self.max_distance = max_distance if limit is None else min(max_distance, limit)
        self.num_offsets = 2 * self.max_distance + 1
        num_rows = self.num_offsets + num_prefix_codes(self.relation.prefix_tokens)
        self.rows = self._parameter(1, num_rows, head_dim)
        self.columns = self._parameter(1, self.num_offsets, head_dim)
        self.value_rows = self._parameter(1, num_rows, head_dim) if values else None
        self.value_columns = self._parameter(1, self.num_offsets, head_dim) if values else None
        self.reset_parameters()

    def forward(self, index: GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        clipped = index.clip(self.max_distance)
        rows = clipped.map(lambda dy, dx: dy + self.max_distance, self.num_offsets)
        columns = clipped.map(lambda dy, dx: dx + self.max_distance, self.num_offsets, one_prefix_code=True)
        return Terms.of(
            Entry(K=self.rows, V=self.value_rows, index=rows),
            Entry(K=self._with_nothing(self.columns), V=self._with_nothing(self.value_columns), index=columns),
        )

    def _with_nothing(self, table: Tensor | None) -> Tensor | None:
        """A table of columns with a last row of zeros for pairs with a prefix token, if there are any."""
        if table is None or not self.relation.prefix_tokens:
            return table
        return nn.functional.pad(table, (0, 0, 0, 1))

    def zero_(self) -> None:
        """Set the tables to zero."""
        for table in (self.rows, self.columns, self.value_rows, self.value_columns):
            if table is not None:
                nn.init.zeros_(table)
