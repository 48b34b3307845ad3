"""Parts whose codes have no structure: gathered, and reduced by scattering into the codes of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from relbias.attention.blocks.part import Part
from relbias.attention.blocks.tile import Block, Tile, reduced
from relbias.attention.blocks.work import Work
from relbias.relations import Index
from relbias.relations.kept import read_codes


def _any_codes(work: Work, index: Index, block: Block, device: torch.device) -> Tensor:
    """(B' or 1, H' or 1, n, m) int32, which is read twice as fast, or int64."""
    codes = work.kept(("codes", id(index)), block.rows, lambda: read_codes(index, block.rows, device))
    return block.shared(codes)[..., block.keys]


def _codes(work: Work, index: Index, block: Block, device: torch.device) -> Tensor:
    """(B' or 1, H' or 1, n, m) int64, made once for the rows."""
    codes = work.kept(("int64", id(index)), block.rows, lambda: read_codes(index, block.rows, device).long())
    return block.shared(codes)[..., block.keys]


@dataclass(frozen=True)
class CodedBias(Part):
    """A number for each code.

    Args:
        table: the number of the tensor (B or 1, H or 1, R).
        index: gives the codes.
    """

    table: int
    index: Index

    @property
    def linear(self) -> tuple[int, ...]:
        return (self.table,)

    @property
    def by_rows(self) -> bool:
        return True

    def per_item(self, work: Work) -> bool:
        return work.tensors[self.table].shape[0] > 1 or self.index.batch_heads[0] > 1

    def _values(self, work: Work, block: Block) -> Tensor:
        table = block.shared(work.tensors[self.table])
        codes = _any_codes(work, self.index, block, table.device)
        b, h = (max(x, y) for x, y in zip(table.shape[:2], codes.shape[:2], strict=True))
        if b == 1 and codes.shape[1] == 1:
            return table[0].index_select(1, codes.flatten()).view(b, h, *codes.shape[2:])
        flat = codes.long().flatten(2).expand(b, h, -1)
        return table.expand(b, h, -1).gather(2, flat).view(b, h, *codes.shape[2:])

    def alone(self, work: Work, block: Block) -> Tensor:
        if self.per_item(work):
            return self._values(work, block)
        state = (block.rows, block.heads)
        return work.kept(("bias", self.table, id(self.index)), state, lambda: self._values(work, block))

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        values = self.alone(work, block)
        if blank:
            tile.values.copy_(values)
        else:
            tile.values.add_(values)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        grad = work.grads[self.table]
        if grad is None:
            return
        change = tile.values
        if not self.per_item(work):
            # The items are summed first: adding is several times faster than scattering.
            state = (block.rows, block.heads)
            total = work.kept(("sum", self.table, id(self.index)), state, lambda: torch.zeros_like(change[:1]))
            change = total.add_(change if len(change) == 1 else change.sum(0, keepdim=True))
            if block.items.stop < work.tensors[0].shape[0]:
                return
        codes = _codes(work, self.index, block, change.device)
        shape = torch.Size(max(x, y) for x, y in zip(grad.shape[:2], codes.shape[:2], strict=True))
        change = reduced(change, shape).flatten(2)
        part = change.new_zeros(*change.shape[:2], grad.shape[2])
        part.scatter_add_(2, codes.flatten(2).expand(change.shape), change)
        block.shared(grad).add_(reduced(part, grad.shape))


@dataclass(frozen=True)
class CodedTable:
    """A vector for each code.

    Args:
        rows: the number of the tensor (B or 1, H or 1, R, D).
        index: gives the codes.
    """

    rows: int
    index: Index

    skews: ClassVar[bool] = False

    def scores(self, work: Work, table: Tensor, x: Tensor, tile: Tile, block: Block, blank: bool) -> None:
        """Add x_i . table[r_ij] to a block, or write it; x is (B' H', n, D) and table (B or 1, H or 1, R, D)."""
        products = (x @ block.tables(table).mT).unflatten(0, block.shape[:2])
        part = products.gather(3, _codes(work, self.index, block, x.device).expand(block.shape))
        if blank:
            tile.values.copy_(part)
        else:
            tile.values.add_(part)

    def pull(self, work: Work, tile: Tile, block: Block, x: Tensor | None, target: Tensor | None) -> None:
        """Read a block A backwards: sum_j A_ij table[r_ij] for the queries, sum_ij A_ij x_i by code for the table.

        Args:
            work: has the table, and its gradient if that is wanted.
            tile: A.
            block: the block.
            x: (B' H', n, D), by which the table was multiplied.
            target: (B' H', n, D), to which the queries' sums are added, or None.
        """
        table, grad = work.tensors[self.rows], work.grads[self.rows]
        codes = _codes(work, self.index, block, table.device).expand(block.shape)
        mass = table.new_zeros(*block.shape[:3], table.shape[2]).scatter_add_(3, codes, tile.values).flatten(0, 1)
        if target is not None:
            target.baddbmm_(mass, block.tables(table))
        if grad is not None and x is not None:
            block.shared(grad).add_(reduced((mass.mT @ x).unflatten(0, block.shape[:2]), grad.shape))
