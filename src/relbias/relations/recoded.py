"""An index whose codes are read from those of another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index
from relbias.relations.kept import read_codes


@dataclass(frozen=True)
class Recoded(Index):
    """The codes of an index with each code replaced by another, r'_ij = table[r_ij]: buckets of offsets on a grid.

    Args:
        base: an index with a limited number of codes R.
        table: makes the new codes on a device, (R,) int64.
        size: R', the number of new codes.
    """

    base: Index
    table: Callable[[torch.device | None], Tensor]
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.base.batch_heads

    @property
    def num_codes(self) -> int:
        return self.size

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        codes = self.base.codes(rows) if device is None else read_codes(self.base, rows, device)
        return self.table(codes.device).index_select(0, codes.flatten()).view(codes.shape)

    @property
    def T(self) -> Recoded:
        return Recoded(self.base.T, self.table, self.size)

    def to(self, device: torch.device | str) -> Recoded:
        return Recoded(self.base.to(device), self.table, self.size)
