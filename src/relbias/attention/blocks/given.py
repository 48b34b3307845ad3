"""Parts that are given for every pair, and products of the queries with a table."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from relbias.attention.blocks.coded import CodedTable
from relbias.attention.blocks.diagonals import DiagonalTable
from relbias.attention.blocks.part import Part
from relbias.attention.blocks.tile import Block, Tile
from relbias.attention.blocks.work import Work
from relbias.attention.masks import Masks

Table = DiagonalTable | CodedTable


@dataclass(frozen=True)
class Given(Part):
    """A matrix.

    Args:
        matrix: the number of the tensor (B or 1, H or 1, N or 1, M or 1).
    """

    matrix: int

    def per_item(self, work: Work) -> bool:
        return work.tensors[self.matrix].shape[0] > 1

    def alone(self, work: Work, block: Block) -> torch.Tensor:
        return block.pairs(work.tensors[self.matrix])

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        part = self.alone(work, block)
        if blank:
            tile.values.copy_(part)
        else:
            tile.values.add_(part)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        grad = work.grads[self.matrix]
        if grad is not None:
            part = block.pairs(grad)
            part.add_(tile.values.sum_to_size(part.shape))


@dataclass(frozen=True)
class Hidden(Part):
    """-inf where masks hide the key.

    Args:
        masks: without a causal mask, a window and a mask that is added.
    """

    masks: Masks

    @property
    def linear(self) -> tuple[int, ...]:
        return ()  # 0 and -inf, which no factor changes

    @property
    def by_rows(self) -> bool:
        return True

    def per_item(self, work: Work) -> bool:
        masks = self.masks
        mask = masks.attn_mask
        return not (masks.key_padding_mask is masks.document_ids is None) or (
            mask is not None and mask.ndim == 4 and mask.shape[0] > 1
        )

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        def make() -> torch.Tensor:
            allowed = self.masks.allowed(block.rows, tile.values.device)
            if allowed is None:
                raise RuntimeError("there is no mask")
            zeros = torch.zeros(allowed.shape, dtype=tile.values.dtype, device=allowed.device)
            return zeros.masked_fill_(~allowed, -torch.inf)  # adding is much faster than filling

        part = block.shared(work.kept("hidden", block.rows, make))
        part = part if part.shape[3] == 1 else part[..., block.keys]
        if blank:
            tile.values.copy_(part)
        else:
            tile.values.add_(part)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        pass


@dataclass(frozen=True)
class Queries(Part):
    """x_i . table[r_ij], for x the queries, or anything else that is one vector for each.

    Args:
        x: the number of the tensor (B, H, N, D).
        table: of vectors of the same size.
    """

    x: int
    table: Table

    @property
    def skews(self) -> bool:
        return self.table.skews

    @property
    def by_rows(self) -> bool:
        return not self.table.skews

    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        x = block.of_queries(work.tensors[self.x])
        self.table.scores(work, work.tensors[self.table.rows], x, tile, block, blank)

    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        grad = work.grads[self.x]
        if grad is not None or work.grads[self.table.rows] is not None:
            x = block.of_queries(work.tensors[self.x])
            self.table.pull(work, tile, block, x, None if grad is None else block.of_queries(grad))
