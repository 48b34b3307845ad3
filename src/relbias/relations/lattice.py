"""What grids and volumes have in common: points with integer coordinates, and prefix tokens before them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, check_size, num_prefix_codes, prefix_codes


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
    """

    sizes: tuple[int, ...]
    prefix_tokens: int
    limits: tuple[int, ...]
    sign: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        tokens = self.prefix_tokens + _product(self.sizes)
        return tokens, tokens

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
        """The places of the patches, in patches, (number of patches, axes) int64, without the prefix tokens."""
        return torch.stack(self._places(torch.arange(_product(self.sizes), device=device)), dim=-1)

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        p = self.prefix_tokens
        tokens = torch.arange(self.shape[0], device=device)
        # A prefix token gets the place of some patch; its codes are overwritten below.
        places = self._places((tokens - p).clamp(min=0))
        codes = torch.zeros((), dtype=torch.int64, device=device)
        for place, limit in zip(places, self.limits, strict=True):
            offsets = ((place[rows, None] - place[None]) * self.sign).clamp(-limit, limit)
            codes = codes * (2 * limit + 1) + offsets + limit
        if p:
            first, second = tokens[rows, None], tokens[None]
            if self.sign == -1:
                first, second = second, first
            codes = prefix_codes(first, second, p, self.num_patch_codes, codes)
        return codes[None, None]

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
