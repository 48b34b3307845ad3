"""What every part of the logits is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from relbias.attention.blocks.tile import Block, Tile
from relbias.attention.blocks.work import Work


class Part(ABC):
    """Something that is added to the logits. It refers to its tensors by number."""

    @property
    def linear(self) -> tuple[int, ...] | None:
        """The numbers of the small tensors in which it is linear, where it depends on no other; else None."""
        return None

    @property
    def skews(self) -> bool:
        """Whether it goes by diagonals, and is added before the product of q and k."""
        return False

    @property
    def by_rows(self) -> bool:
        """Whether it keeps what it makes for some queries, to be used for all items and heads."""
        return False

    def per_item(self, work: Work) -> bool:
        """Whether it differs from item to item."""
        return True

    def alone(self, work: Work, block: Block) -> Tensor | None:
        """The part of a block, (B' or 1, H' or 1, n or 1, m or 1), to be read only; None if it is made in a tile."""
        return None

    @abstractmethod
    def add(self, work: Work, tile: Tile, block: Block, blank: bool) -> None:
        """Add it to the logits of a block; write it where the tile is blank."""

    @abstractmethod
    def collect(self, work: Work, tile: Tile, block: Block) -> None:
        """Take the gradients of its tensors from a block of the logits' gradient, whose padding is zero."""

    def finish(self, work: Work) -> None:  # noqa: B027 (most keep nothing)
        """Take what was kept for after the last block."""
