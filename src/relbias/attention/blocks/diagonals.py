"""Parts that are functions of the diagonal, j - i + N - 1: O(N + M) numbers, read and reduced without any index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from relbias.attention.blocks.part import Part
from relbias.attention.blocks.tile import Block, Tile, reduced
from relbias.attention.blocks.work import Work


def window(block: Block, n: int) -> tuple[int, int]:
    """The diagonals of a block of N queries: the first one, and the one after the last."""
    _, _, rows, keys = block.shape
    first = n - block.rows.stop + block.keys.start
    return first, first + rows + keys - 1


@dataclass(frozen=True)
class DiagonalBias(Part):
    """A number for each diagonal.

    Args:
        values: the number of the tensor (B or 1, H or 1, N + M - 1); it may hold -inf.
        n: N.
    """

    values: int
    n: int

    @property
    def linear(self) -> tuple[int, ...]:
        return (self.values,)

    @property
    def skews(self) -> bool:
        return True

    def per_item(self, work: Work) -> bool:
        return work.tensors[self.values].shape[0] > 1

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        first, end = window(block, self.n)
        values = block.shared(work.tensors[self.values])[..., None, first:end]
        if blank:
            tile.skewed.copy_(values)
        else:
            tile.skewed.add_(values)

    def write(self, work: Work, tile: Tile, block: Block, less: Tensor) -> None:
        """Write a block, less (B', H', n, 1)."""
        first, end = window(block, self.n)
        torch.sub(block.shared(work.tensors[self.values])[..., None, first:end], less, out=tile.skewed)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        grad = work.grads[self.values]
        if grad is not None:
            first, end = window(block, self.n)
            block.shared(grad)[..., first:end].add_(reduced(tile.skewed.sum(2), grad.shape))


@dataclass(frozen=True)
class DiagonalTable:
    """A vector for each diagonal; those before the first row have the first one, those after the last row the last.

    So an offset that is clipped costs no product of vectors outside the limits.

    Args:
        rows: the number of the tensor (B or 1, H or 1, R, D).
        first: the diagonal of the first row.
        n: N.
    """

    rows: int
    first: int
    n: int

    skews: ClassVar[bool] = True

    def _spans(self, size: int, block: Block) -> tuple[int, int, int]:
        """Of a block's diagonals: how many are before the rows, how many have rows, and the first of these rows."""
        first, end = window(block, self.n)
        before = min(max(self.first - first, 0), end - first)
        after = min(max(end - self.first - size, 0), end - first)
        return before, end - first - before - after, first + before - self.first

    def scores(self, work: Work, table: Tensor, x: Tensor, tile: Tile, block: Block, blank: bool) -> None:
        """Add x_i . table[r_ij] to a block, or write it; x is (B' H', n, D) and table (B or 1, H or 1, R, D)."""
        before, count, row = self._spans(table.shape[2], block)
        table = block.tables(table)
        if count:
            out = tile.flat_skewed[..., before : before + count]
            torch.baddbmm(out, x, table[:, row : row + count].mT, beta=0 if blank else 1, out=out)
        for columns, edge in self._edges(tile, before, count):
            part = x @ table[:, edge, :, None]
            if blank:
                columns.copy_(part)
            else:
                columns.add_(part)

    def _edges(self, tile: Tile, before: int, count: int) -> list[tuple[Tensor, int]]:
        parts = ((tile.flat_skewed[..., :before], 0), (tile.flat_skewed[..., before + count :], -1))
        return [(columns, edge) for columns, edge in parts if columns.shape[2]]

    def pull(self, work: Work, tile: Tile, block: Block, x: Tensor | None, target: Tensor | None) -> None:
        """Read a block A backwards: sum_j A_ij table[r_ij] for the queries, sum_ij A_ij x_i by row for the table.

        Args:
            work: has the table, and its gradient if that is wanted.
            tile: A, with zeros as padding.
            block: the block.
            x: (B' H', n, D), by which the table was multiplied.
            target: (B' H', n, D), to which the queries' sums are added, or None.
        """
        before, count, row = self._spans(work.tensors[self.rows].shape[2], block)
        grad = work.grads[self.rows]
        table = block.tables(work.tensors[self.rows])
        middle = tile.flat_skewed[..., before : before + count]
        sums = [(columns.sum(2, keepdim=True), edge) for columns, edge in self._edges(tile, before, count)]
        if target is not None:
            if count:
                target.baddbmm_(middle, table[:, row : row + count])
            for total, edge in sums:
                target.baddbmm_(total, table[:, edge, None])
        if grad is not None and x is not None:
            part = block.shared(grad)
            if count:
                change = torch.bmm(middle.mT, x).unflatten(0, block.shape[:2])
                part[:, :, row : row + count].add_(reduced(change, grad.shape))
            for total, edge in sums:
                part[:, :, edge].add_(reduced((total.mT @ x)[:, 0].unflatten(0, block.shape[:2]), grad.shape))


@dataclass(frozen=True)
class DiagonalKeys(Part):
    """k_j . table[r_ij]: for one key the diagonals run the other way, so it is made for a few keys at a time.

    Args:
        keys: the number of the tensor (B, H, M, D).
        rows: the number of the tensor (B or 1, H or 1, R, D); as in `DiagonalTable` the ends stand for what is beyond.
        first: the diagonal of the first row.
        n: N.
    """

    keys: int
    rows: int
    first: int
    n: int

    def _pieces(self, size: int, block: Block) -> list[tuple[slice, int | None]]:
        """The keys of a block in pieces: those with one vector for all of its queries, and which, and the others."""
        _, _, n, m = block.shape
        first, _ = window(block, self.n)  # key j of the block has the diagonals from first + j to first + j + n - 1
        before = min(max(self.first + 1 - first - (n - 1), 0), m)
        after = max(min(self.first + size - 1 - first, m), before)
        width = max(n // 4, 32)  # each key costs n + width products for its n
        middle = [(slice(start, min(start + width, after)), None) for start in range(before, after, width)]
        ends = [(slice(0, before), 0), (slice(after, m), -1)]
        return [(keys, edge) for keys, edge in [*ends, *middle] if keys.stop > keys.start]

    def _rows(self, table: Tensor, block: Block, keys: slice) -> tuple[Tensor, Tensor]:
        """For some keys the rows of all of their diagonals, the last diagonal first, and which rows these are."""
        _, _, n, _ = block.shape
        first, _ = window(block, self.n)
        diagonals = torch.arange(first + keys.stop + n - 2, first + keys.start - 1, -1, device=table.device)
        codes = (diagonals - self.first).clamp(0, table.shape[1] - 1)
        return table.index_select(1, codes), codes

    @staticmethod
    def _skewed(scores: Tensor, n: int) -> Tensor:
        """Of the scores of s keys and n + s - 1 diagonals those of the pairs, (B' H', n, s)."""
        g, s, width = scores.shape
        return scores.as_strided((g, n, s), (s * width, 1, width - 1), s - 1)

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        table, keys = block.tables(work.tensors[self.rows]), block.of_keys(work.tensors[self.keys])
        for piece, edge in self._pieces(table.shape[1], block):
            if edge is None:
                scores = keys[:, piece] @ self._rows(table, block, piece)[0].mT
                part = self._skewed(scores, block.shape[2])
            else:
                part = (keys[:, piece] @ table[:, edge, :, None]).mT
            if blank:
                tile.flat[..., piece].copy_(part)
            else:
                tile.flat[..., piece].add_(part)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        key_grad, row_grad = work.grads[self.keys], work.grads[self.rows]
        if key_grad is None and row_grad is None:
            return
        table, keys = block.tables(work.tensors[self.rows]), block.of_keys(work.tensors[self.keys])
        n = block.shape[2]
        for piece, edge in self._pieces(table.shape[1], block):
            part = tile.flat[..., piece]
            if edge is None:
                size = piece.stop - piece.start
                mass = part.new_zeros(part.shape[0], size, size + n - 1)
                self._skewed(mass, n).copy_(part)
                rows, codes = self._rows(table, block, piece)
            else:
                mass = part.sum(1)[..., None]
                rows, codes = table[:, edge, None], torch.tensor([edge % table.shape[1]], device=table.device)
            if key_grad is not None:
                block.of_keys(key_grad)[:, piece].baddbmm_(mass, rows)
            if row_grad is not None:
                change = (mass.mT @ keys[:, piece]).unflatten(0, block.shape[:2])
                block.shared(row_grad).index_add_(2, codes, reduced(change, row_grad.shape))
