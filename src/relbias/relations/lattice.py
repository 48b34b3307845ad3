"""What grids and volumes have in common: points with integer coordinates, and prefix tokens before them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from relbias.relations.base import (
    ALL_ROWS,
    Index,
    Relation,
    as_integers,
    can_check_values,
    check_size,
    num_prefix_codes,
    prefix_codes,
)


def _product(numbers: tuple[int, ...]) -> int:
    """The product, in a loop that can be compiled and exported."""
    product = 1
    for number in numbers:
        product = product * number
    return product


@dataclass(frozen=True)
class LatticeIndex(Index):
    """The offsets between the patches of one call, row by row, the last axis fastest.

    Args:
        sizes: of every axis, in patches.
        prefix_tokens: P.
        limits: of every axis the largest distance with codes of its own, in patches; offsets are clipped to them.
        sign: 1, or -1 for the transposed index.
        patches: (B, n) int64, the patches that are there, by number, in the order of the tokens; None for all of them,
            in order.
    """

    sizes: tuple[int, ...]
    prefix_tokens: int
    limits: tuple[int, ...]
    sign: int = 1
    patches: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        patches = _product(self.sizes) if self.patches is None else self.patches.shape[1]
        return self.prefix_tokens + patches, self.prefix_tokens + patches

    @property
    def batch_heads(self) -> tuple[int, int]:
        return (1 if self.patches is None else self.patches.shape[0]), 1

    @property
    def of_sizes(self) -> bool:
        return self.patches is None

    @property
    def num_patch_codes(self) -> int:
        """The number of codes of pairs of patches; those of prefix tokens follow."""
        return _product(tuple(2 * limit + 1 for limit in self.limits))

    @property
    def num_codes(self) -> int:
        return self.num_patch_codes + num_prefix_codes(self.prefix_tokens)

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self.limits, self.prefix_tokens

    def _places(self, patches: Tensor) -> list[Tensor]:
        """The coordinates of patches given by number, an axis each."""
        places = []
        for size in reversed(self.sizes):
            places.append(patches % size)
            patches = patches // size
        return places[::-1]

    def coordinates(self, device: torch.device | None = None) -> Tensor:
        """The places of the patches, without the prefix tokens: (n, axes) int64, or (B, n, axes) of given ones."""
        patches = torch.arange(_product(self.sizes), device=device) if self.patches is None else self.patches
        return torch.stack(self._places(patches), dim=-1)

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        p = self.prefix_tokens
        device = device if self.patches is None else self.patches.device
        tokens = torch.arange(self.shape[0], device=device)
        # A prefix token gets the place of some patch; its codes are overwritten below.
        if self.patches is None:
            patches = (tokens - p).clamp(min=0)[None]
        else:
            patches = torch.nn.functional.pad(self.patches, (p, 0))
        codes = torch.zeros((), dtype=torch.int64, device=device)
        for place, limit in zip(self._places(patches), self.limits, strict=True):
            offsets = ((place[:, rows, None] - place[:, None]) * self.sign).clamp(-limit, limit)
            codes = codes * (2 * limit + 1) + offsets + limit
        if p:
            first, second = tokens[rows, None], tokens[None]
            if self.sign == -1:
                first, second = second, first
            codes = prefix_codes(first, second, p, self.num_patch_codes, codes)
        return codes[:, None]

    def of(self, patches: Tensor) -> Self:
        """The index of some patches: what is left where others were dropped, or an image packed with others.

        Args:
            patches: (B, n) integers, the patches of each item by number, y W + x on a grid, in the order of the tokens;
                prefix tokens, which all items keep, are not counted.

        Raises:
            ValueError: the patches are not (B, n) integers, or one is not on the grid.

        Example:
            >>> from relbias.relations import Grid
            >>> Grid(4, 4)().of(torch.tensor([[0, 3, 12]])).coordinates()
            tensor([[[0, 0],
                     [0, 3],
                     [3, 0]]])
        """
        patches = as_integers("the patches of an index", patches).long()
        if patches.ndim != 2:
            raise ValueError(f"the patches of an index are (B, n), got {tuple(patches.shape)}")
        count = _product(self.sizes)
        if patches.numel() and can_check_values(patches) and not 0 <= int(patches.min()) <= int(patches.max()) < count:
            raise ValueError(f"the patches of a lattice of {'x'.join(map(str, self.sizes))} are 0 to {count - 1}")
        return replace(self, patches=patches)

    def to(self, device: torch.device | str) -> Self:
        return self if self.patches is None else replace(self, patches=self.patches.to(device))

    def clip(self, max_distance: int) -> Self:
        """The same index with offsets clipped to at most `max_distance` patches along each axis.

        Unlike the relation's own codes those of the clipped index depend on `max_distance` and P alone.
        """
        return replace(self, limits=(max_distance,) * len(self.sizes))

    @property
    def T(self) -> Self:
        return replace(self, sign=-self.sign)


class Lattice(Relation):
    """A relation whose indices are lattices; a subclass has a field for every axis and names them in `axes`."""

    axes: ClassVar[tuple[str, ...]]
    prefix_tokens: int
    max_distance: int | None

    def __post_init__(self) -> None:
        name = type(self).__name__
        for axis, size in zip(self.axes, self.sizes, strict=True):
            check_size(f"{name}'s {axis}", size, 1)
        check_size(f"{name}'s prefix_tokens", self.prefix_tokens, 0)
        if self.max_distance is not None:
            check_size(f"{name}'s max_distance", self.max_distance, 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of every axis, in patches."""
        return tuple(getattr(self, axis) for axis in self.axes)

    @property
    def num_codes(self) -> int:
        return self().num_codes

    @property
    def code_space(self) -> tuple[Any, ...]:
        return self().code_space

    @abstractmethod
    def __call__(self, *sizes: int | None) -> LatticeIndex:
        """The index of one call, of the relation's own sizes by default."""

    def limits(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Of every axis the largest distance with codes of its own, for a call of these sizes.

        Raises:
            ValueError: a size is not positive, or the call is larger than the relation without `max_distance`.
        """
        name = type(self).__name__
        for axis, size in zip(self.axes, sizes, strict=True):
            check_size(f"a {name.lower()}'s {axis}", size, 1)
        if self.max_distance is not None:
            return (self.max_distance,) * len(sizes)
        if any(size > own for size, own in zip(sizes, self.sizes, strict=True)):
            raise ValueError(
                f"a {'x'.join(map(str, sizes))} {name.lower()} has offsets that "
                f"{name}({', '.join(map(str, self.sizes))}) has no codes for; give the table more "
                "with `resize`, or bound the relation with max_distance"
            )
        return tuple(own - 1 for own in self.sizes)

    def resized(self, *sizes: int) -> Self:
        """The same relation for other sizes, with their codes."""
        return replace(self, **dict(zip(self.axes, sizes, strict=True)))  # ty: ignore[invalid-argument-type]
