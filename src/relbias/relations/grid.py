"""Two-dimensional offsets between the patches of an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from relbias.relations.base import num_prefix_codes
from relbias.relations.lattice import Lattice, LatticeIndex
from relbias.relations.recoded import Recoded


@dataclass(frozen=True)
class Grid(Lattice):
    """The offset (dy, dx) from a key's patch to a query's patch, (y_i - y_j, x_i - x_j).

    The tokens are P prefix tokens (class token, registers), then the patches row by row: patch (y, x) is token
    P + y W + x. The code of two patches is (dy + a) (2 b + 1) + dx + b, where a and b are the largest distances
    H - 1 and W - 1, or both `max_distance`, to which the offsets are then clipped. This is the order of the tables
    of Swin and BEiT. Each kind of pair with a prefix token has a code of its own, from the last patch code on:
    prefix token to patch (P codes), patch to prefix token (P), prefix token to prefix token (P^2).

    Args:
        height: H, in patches.
        width: W, in patches.
        prefix_tokens: P.
        max_distance: the largest distance along an axis with a code of its own, in patches; None for the grid's.

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> grid = Grid(2, 2, prefix_tokens=1)
        >>> grid.num_codes
        12
        >>> grid().codes()[0, 0]
        tensor([[11,  9,  9,  9,  9],
                [10,  4,  3,  1,  0],
                [10,  5,  4,  2,  1],
                [10,  7,  6,  4,  3],
                [10,  8,  7,  5,  4]])
    """

    height: int
    width: int
    prefix_tokens: int = 0
    max_distance: int | None = None

    axes: ClassVar[tuple[str, ...]] = ("height", "width")

    @property
    def index_type(self) -> type[GridIndex]:
        return GridIndex

    def __call__(self, height: int | None = None, width: int | None = None) -> GridIndex:
        """The index of one call.

        Args:
            height: the call's height, in patches; the relation's by default.
            width: the call's width, in patches; the relation's by default.

        Raises:
            ValueError: the call's grid is larger than the relation's, whose codes would not suffice (with
                `max_distance` any size will do), or only one of the two was given.
        """
        if (height is None) != (width is None):
            raise ValueError(f"a grid takes both a height and a width, got height={height} and width={width}")
        if height is None or width is None:
            height, width = self.height, self.width
        return GridIndex((height, width), self.prefix_tokens, self.limits((height, width)))


@dataclass(frozen=True)
class GridIndex(LatticeIndex):
    """The offsets of one call. Made by calling a :class:`Grid`; its sizes are (H, W), its coordinates (y, x)."""

    @property
    def height(self) -> int:
        """H, in patches."""
        return self.sizes[0]

    @property
    def width(self) -> int:
        """W, in patches."""
        return self.sizes[1]

    def map(
        self, function: Callable[[Tensor, Tensor], Tensor], num_codes: int, *, one_prefix_code: bool = False
    ) -> Recoded:
        """An index of the codes function(dy, dx), for example buckets.

        The function is evaluated once for each offset, not for each pair of patches.

        Args:
            function: elementwise on int64 tensors of any shape; gives codes in [0, num_codes).
            num_codes: R. The codes of pairs with a prefix token follow.
            one_prefix_code: whether all pairs with a prefix token have the code R, and not each kind its own.
        """
        prefix = num_prefix_codes(self.prefix_tokens)

        def table(device: torch.device | None) -> Tensor:
            axes = (torch.arange(-limit, limit + 1, device=device) for limit in self.limits)
            patches = function(*torch.meshgrid(*axes, indexing="ij")).flatten()
            others = torch.arange(prefix, device=device) * (not one_prefix_code)
            return torch.cat((patches, num_codes + others))

        return Recoded(self, table, num_codes + (min(prefix, 1) if one_prefix_code else prefix))
