"""The products of keys with a table, made once, from which blocks read those of their pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relbias.attention.blocks.part import Part
from relbias.attention.blocks.tile import Block, Tile, reduced
from relbias.attention.blocks.work import Work
from relbias.relations import Index
from relbias.relations.kept import read_codes

_SMALL = 60 * 60
"""Matrices of fewer numbers are transposed all at once: torch has a fast way for single, larger ones."""


def _transpose(target: Tensor, x: Tensor) -> None:
    """Write contiguous matrices, (B', H', n, m), as (B', H', m, n)."""
    if x.shape[2] * x.shape[3] < _SMALL:
        target.copy_(x.mT)
        return
    for some, matrix in zip(target.flatten(0, 1), x.flatten(0, 1), strict=True):
        some.copy_(matrix.mT)


@dataclass(frozen=True)
class CodedKeys(Part):
    """k_j . table[r_ij], from the products of the keys with the table, (B, H, M, R).

    They are read, and gradients scattered into codes, key by key, where all numbers of a key lie side by side, and then
    transposed: that is twice as fast as reading them query by query, each from another place.

    Args:
        keys: the number of the tensor (B, H, M, D).
        rows: the number of the tensor (B or 1, H or 1, R, D).
        index: gives the codes.
        diagonals: (N + M - 1,) int64, the codes of the diagonals j - i + N - 1, where each has one code, or None.
        n: N.
        by_heads: whether the blocks come head by head, so that the products of a head can go before the next.
    """

    keys: int
    rows: int
    index: Index
    diagonals: Tensor | None
    n: int
    by_heads: bool = False

    @property
    def by_rows(self) -> bool:
        return self.diagonals is None

    def _codes(self, work: Work, block: Block) -> Tensor:
        """The codes of a block, (B' or 1, H' or 1, m, n) int64."""
        diagonals, size = self.diagonals, block.shape[2]
        if diagonals is None:
            device = work.tensors[self.keys].device

            def make() -> Tensor:
                return read_codes(self.index, block.rows, device).long().mT.contiguous()

            return block.shared(work.kept(("by key", id(self.index)), block.rows, make))[:, :, block.keys]
        # Number (t, i) is the code of diagonal t - i + n - 1: every block of n queries finds its own in some of the t.
        every = work.kept(("diagonals", id(self.index)), size, lambda: diagonals.unfold(0, size, 1).flip(1))
        first = self.n - block.rows.stop + block.keys.start
        return every[None, None, first : first + block.shape[3]]

    def _heads(self, work: Work, block: Block) -> Block:
        """The block of all queries and keys of those items and heads whose products are made together."""
        b, h, n, _ = work.tensors[0].shape
        items, heads = (block.items, block.heads) if self.by_heads else (slice(0, b), slice(0, h))
        return Block(items, heads, slice(0, n), slice(0, work.tensors[self.keys].shape[2]))

    def _within(self, whole: Tensor, block: Block) -> Tensor:
        """The part of a block of what was made by `_heads`."""
        return whole[:, :, block.keys] if self.by_heads else whole[block.items, block.heads, block.keys]

    def _buffers(self, work: Work, tile: Tile, block: Block) -> tuple[Tensor, Tensor]:
        """Memory for the numbers of a block by key, (B', H', m, n), and by query, (B', H', n, m)."""
        b, h, n, m = block.shape
        memory = work.kept("by key", block.shape, lambda: tile.values.new_empty(2, b * h * n * m))
        return memory[0].view(b, h, m, n), memory[1].view(b, h, n, m)

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        heads = self._heads(work, block)

        def make() -> Tensor:
            keys = heads.of_keys(work.tensors[self.keys])
            return (keys @ heads.tables(work.tensors[self.rows]).mT).unflatten(0, heads.shape[:2])

        products = self._within(work.kept(("products", self.keys, self.rows), heads, make), block)
        by_key, part = self._buffers(work, tile, block)
        codes = self._codes(work, block)
        torch.gather(products, 3, codes.expand(by_key.shape), out=by_key)
        _transpose(part, by_key)
        if blank:
            tile.values.copy_(part)
        else:
            tile.values.add_(part)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        if work.grads[self.keys] is None and work.grads[self.rows] is None:
            return
        heads, name = self._heads(work, block), ("mass", self.keys, self.rows)
        if work.state(name) != heads:
            self.finish(work)

        def make() -> Tensor:
            rows = work.tensors[self.rows].shape[2]
            return tile.values.new_zeros(*heads.shape[:2], heads.shape[3], rows)

        mass = self._within(work.kept(name, heads, make), block)
        by_key, change = self._buffers(work, tile, block)
        change.copy_(tile.values)
        _transpose(by_key, change)
        mass.scatter_add_(3, self._codes(work, block).expand(by_key.shape), by_key)

    def finish(self, work: Work) -> None:
        name = ("mass", self.keys, self.rows)
        heads = work.state(name)
        if not isinstance(heads, Block):
            return
        mass = work.taken(name).flatten(0, 1)
        key_grad, row_grad = work.grads[self.keys], work.grads[self.rows]
        if key_grad is not None:
            heads.of_keys(key_grad).baddbmm_(mass, heads.tables(work.tensors[self.rows]))
        if row_grad is not None:
            change = (mass.mT @ heads.of_keys(work.tensors[self.keys])).unflatten(0, heads.shape[:2])
            heads.shared(row_grad).add_(reduced(change, row_grad.shape))
