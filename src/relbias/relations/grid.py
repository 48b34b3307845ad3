"""Two-dimensional offsets between the patches of an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, check_size, num_prefix_codes, prefix_codes
from relbias.relations.recoded import Recoded


@dataclass(frozen=True)
class Grid(Relation):
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

    def __post_init__(self) -> None:
        check_size("Grid's height", self.height, 1)
        check_size("Grid's width", self.width, 1)
        check_size("Grid's prefix_tokens", self.prefix_tokens, 0)
        if self.max_distance is not None:
            check_size("Grid's max_distance", self.max_distance, 0)

    @property
    def num_codes(self) -> int:
        return self().num_codes

    @property
    def index_type(self) -> type[GridIndex]:
        return GridIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self().code_space

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
        check_size("a grid's height", height, 1)
        check_size("a grid's width", width, 1)
        limits = (self.height - 1, self.width - 1)
        if self.max_distance is not None:
            limits = (self.max_distance, self.max_distance)
        elif height > self.height or width > self.width:
            raise ValueError(
                f"a {height}x{width} grid has offsets that Grid({self.height}, {self.width}) has no codes for; "
                "give the table more with `resize`, or bound the relation with max_distance"
            )
        return GridIndex(height, width, self.prefix_tokens, limits)

    def resized(self, height: int, width: int) -> Grid:
        """The same relation for another grid, with that grid's codes."""
        return replace(self, height=height, width=width)


@dataclass(frozen=True)
class GridIndex(Index):
    """The offsets of one call. Made by calling a :class:`Grid`.

    Args:
        height: H, in patches.
        width: W, in patches.
        prefix_tokens: P.
        limits: the largest |dy| and |dx| with codes of their own, in patches; offsets are clipped to them.
        sign: 1, or -1 for the transposed index.
    """

    height: int
    width: int
    prefix_tokens: int
    limits: tuple[int, int]
    sign: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        tokens = self.prefix_tokens + self.height * self.width
        return tokens, tokens

    @property
    def num_patch_codes(self) -> int:
        """The number of codes of pairs of patches; those of prefix tokens follow."""
        return (2 * self.limits[0] + 1) * (2 * self.limits[1] + 1)

    @property
    def num_codes(self) -> int:
        return self.num_patch_codes + num_prefix_codes(self.prefix_tokens)

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.limits, self.prefix_tokens

    def coordinates(self, device: torch.device | None = None) -> Tensor:
        """The places (y, x) of the patches, in patches, (H W, 2) int64, without the prefix tokens."""
        patches = torch.arange(self.height * self.width, device=device)
        return torch.stack((patches // self.width, patches % self.width), dim=-1)

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        p = self.prefix_tokens
        tokens = torch.arange(self.shape[0], device=device)
        # A prefix token gets the place of some patch; its codes are overwritten below.
        patches = (tokens - p).clamp(min=0)
        y, x = patches // self.width, patches % self.width
        (limit_y, limit_x), sign = self.limits, self.sign
        dy = ((y[rows, None] - y[None]) * sign).clamp(-limit_y, limit_y)
        dx = ((x[rows, None] - x[None]) * sign).clamp(-limit_x, limit_x)
        codes = (dy + limit_y) * (2 * limit_x + 1) + dx + limit_x
        if p:
            first, second = tokens[rows, None], tokens[None]
            if sign == -1:
                first, second = second, first
            codes = prefix_codes(first, second, p, self.num_patch_codes, codes)
        return codes[None, None]

    def clip(self, max_distance: int) -> GridIndex:
        """The same index with offsets clipped to at most `max_distance` patches along each axis.

        Unlike the grid's own codes those of the clipped index depend on `max_distance` and P alone.
        """
        return replace(self, limits=(max_distance, max_distance))

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

    @property
    def T(self) -> GridIndex:
        return replace(self, sign=-self.sign)
