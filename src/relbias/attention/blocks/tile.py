"""Blocks of the logits, and the memory that one of them takes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_ALIGNED = 16
"""Rows start at multiples of this many numbers: a line of the cache in float32."""


@dataclass(frozen=True)
class Block:
    """A part of the logits of all items, heads, queries and keys; slices with a start and a stop.

    Args:
        items: of B.
        heads: of H.
        rows: of N, the queries.
        keys: of M.
    """

    items: slice
    heads: slice
    rows: slice
    keys: slice

    @functools.cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """(B', H', n, m) of the block."""
        b, h, n, m = (part.stop - part.start for part in (self.items, self.heads, self.rows, self.keys))
        return b, h, n, m

    def _flat(self, x: Tensor, some: slice) -> Tensor:
        """The block's items and heads of (B, H, ...) and some of the next axis, as (B' H', ...)."""
        first = self.items.start
        if self.items.stop - first == 1:  # fewer operations: this is called ten times for a block
            return x[first, self.heads, some]
        return x[self.items, self.heads, some].flatten(0, 1)

    def of_queries(self, x: Tensor) -> Tensor:
        """The block's part of (B, H, N, ...), as (B' H', n, ...)."""
        return self._flat(x, self.rows)

    def of_keys(self, x: Tensor) -> Tensor:
        """The block's part of (B, H, M, ...), as (B' H', m, ...)."""
        return self._flat(x, self.keys)

    def shared(self, x: Tensor) -> Tensor:
        """The block's part of (B or 1, H or 1, ...), as (B' or 1, H' or 1, ...)."""
        return x[self.items if x.shape[0] > 1 else slice(None), self.heads if x.shape[1] > 1 else slice(None)]

    def tables(self, x: Tensor) -> Tensor:
        """The block's part of (B or 1, H or 1, R, D), as (B' H', R, D)."""
        part = self.shared(x)
        return part.expand(*self.shape[:2], *part.shape[2:]).flatten(0, 1)

    def pairs(self, x: Tensor) -> Tensor:
        """The block's part of (B or 1, H or 1, N or 1, M or 1), broadcasting to the block."""
        part = self.shared(x)
        part = part if part.shape[2] == 1 else part[:, :, self.rows]
        return part if part.shape[3] == 1 else part[..., self.keys]


def row_blocks(n: int, size: int) -> Iterator[slice]:
    """The queries, some of N at a time."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def groups(batch: int, heads: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Items and heads, at most `size` pairs at a time: several items with all heads, or some heads of one item.

    The items come innermost, so that what they share is made and reduced once.
    """
    if size >= heads:
        items = max(1, size // max(1, heads))
        items = -(-batch // -(-batch // items))  # as many in each block
        for start in range(0, batch, items):
            yield slice(start, min(start + items, batch)), slice(0, heads)
        return
    for first in range(0, heads, max(1, size)):
        for item in range(batch):
            yield slice(item, item + 1), slice(first, min(first + max(1, size), heads))


class Tile:
    """The memory of a block of numbers, used again by the next block.

    The rows may lie so far apart that the diagonals can be read, and written, as columns: number (i, j) of the block is
    number (i, j - i + n - 1) of `skewed`, which lies at the same place. What of `skewed` belongs to no pair of the
    block is padding.

    Args:
        like: has the dtype and device.
        skews: whether `skewed` is needed.
    """

    def __init__(self, like: Tensor, skews: bool) -> None:
        self._memory = like.new_empty(0)
        self._shape: tuple[int, int, int, int] | None = None
        self._skews = skews

    def take(self, block: Block) -> None:
        """Become a tile of the block's shape; a new shape has padding of zeros."""
        if block.shape == self._shape:
            return
        b, h, n, m = self._shape = block.shape
        margin = n - 1 if self._skews else 0
        front = -(-margin // _ALIGNED) * _ALIGNED
        row = -(-(m + margin) // _ALIGNED) * _ALIGNED if self._skews else m
        group = front + n * row
        size = b * h * group + _ALIGNED
        if self._memory.numel() < size:
            self._memory = self._memory.new_empty(0)  # freed before the larger one is made
            self._memory = self._memory.new_empty(size)
        memory = self._memory[:size]
        if self._skews:
            memory.zero_()
        self.values = memory.as_strided((b, h, n, m), (h * group, group, row, 1), front)
        self.flat = memory.as_strided((b * h, n, m), (group, row, 1), front)
        if self._skews:
            skewed = (h * group, group, row + 1, 1)
            self.skewed = memory.as_strided((b, h, n, n + m - 1), skewed, front - margin)
            self.flat_skewed = memory.as_strided((b * h, n, n + m - 1), skewed[1:], front - margin)
            self._padding = (
                memory.as_strided((b * h, front), (group, 1), 0),
                memory.as_strided((b * h, n, row - m), (group, row, 1), front + m),
            )

    def clear_padding(self) -> None:
        """Write zeros into the padding."""
        for part in self._padding if self._skews else ():
            part.zero_()


def reduced(x: Tensor, shape: torch.Size) -> Tensor:
    """X summed over the first two axes where the shape has 1."""
    axes = [axis for axis in (0, 1) if shape[axis] == 1 and x.shape[axis] > 1]
    return x.sum(axes, keepdim=True) if axes else x
