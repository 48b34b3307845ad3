"""What every relation and every index has in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

ALL_ROWS = slice(None)


class Relation(ABC):
    """A rule that says which code holds between a query and a key. It has no parameters.

    Calling a relation binds it to one attention call and gives an :class:`Index`.
    """

    num_codes: int | None
    """R, the number of codes, or None where a code exists for every integer."""

    @property
    def index_type(self) -> type[Index]:
        """The class of the relation's indices."""
        return Index

    @property
    def code_space(self) -> tuple[Any, ...]:
        """What fixes the meaning of a code; an index with another code space has other codes."""
        return (self.num_codes,)

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Index:
        """The index of one call."""


class Index(ABC):
    """A relation bound to one call of N queries and M keys.

    An index with structure (a sequence, a grid) is lazy: it holds sizes, and makes codes only for the rows that
    are asked for.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(N, M), the number of queries and of keys."""

    @property
    def batch_heads(self) -> tuple[int, int]:
        """The first two axes of `codes`: (B or 1, H or 1)."""
        return 1, 1

    @property
    def of_sizes(self) -> bool:
        """Whether it is made of sizes alone, so that equal indices have equal codes; see `read_codes`."""
        return False

    @property
    def code_space(self) -> tuple[Any, ...]:
        """What fixes the meaning of a code, as in the relation."""
        return (self.num_codes,)

    @property
    @abstractmethod
    def num_codes(self) -> int | None:
        """R, the number of codes, or None where a code exists for every integer."""

    @abstractmethod
    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        """The codes r_ij of some rows.

        Args:
            rows: the queries asked for, n of N; all by default.
            device: where to make codes that are computed; given codes stay where they are.

        Returns:
            (B or 1, H or 1, n, M) int64, each in [0, R).
        """

    @property
    @abstractmethod
    def T(self) -> Index:
        """The transposed index: the code at (i, j) is the relation of the pair (j, i). Also (N, M)."""

    def diagonals(self, device: torch.device | None = None) -> Tensor | None:
        """The codes of the N + M - 1 diagonals, if every diagonal has one code.

        Returns:
            (N + M - 1,) int64 with r_ij at j - i + N - 1, or None without this structure.
        """
        return None

    def to(self, device: torch.device | str) -> Index:
        """The same index with its tensors on a device."""
        return self


@dataclass(frozen=True)
class Mapped(Index):
    """An index whose codes are a function of a sequence index's differences: buckets, distances.

    Args:
        base: an index with `differences(rows, device)` and `offsets(device)`.
        function: elementwise on int64 tensors, differences to codes.
        size: R, the number of codes that the function gives.
    """

    base: Any
    function: Callable[[Tensor], Tensor]
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.base.batch_heads

    @property
    def num_codes(self) -> int:
        return self.size

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self.function(self.base.differences(rows, device))

    def diagonals(self, device: torch.device | None = None) -> Tensor | None:
        offsets = self.base.offsets(device)
        return None if offsets is None else self.function(offsets)

    @property
    def T(self) -> Mapped:
        return Mapped(self.base.T, self.function, self.size)

    def to(self, device: torch.device | str) -> Mapped:
        return Mapped(self.base.to(device), self.function, self.size)


def check_size(name: str, value: object, minimum: int) -> None:
    """Raise ValueError unless `value` is an int of at least `minimum`; `name` is what the user called it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")


def as_integers(name: str, values: Any) -> Tensor:
    """Integers in a dtype that torch computes with, or a ValueError; `name` is what the user called them."""
    values = torch.as_tensor(values)
    if values.dtype.is_floating_point or values.dtype.is_complex or values.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {values.dtype}; convert them with .long()")
    return values.long() if values.dtype in (torch.uint16, torch.uint32, torch.uint64) else values


def check_number(name: str, value: object, minimum: float, *, above: bool = False) -> None:
    """Raise ValueError unless `value` is a finite number of at least `minimum`, or `above` it; `name` as above."""
    number = float(value) if isinstance(value, Real) else math.nan
    if isinstance(value, bool) or not (minimum < number if above else minimum <= number) or math.isinf(number):
        raise ValueError(f"{name} must be a number {'above' if above else 'of at least'} {minimum:g}, got {value!r}")


def can_check_values(tensor: Tensor) -> bool:
    """Whether looking at values is free of surprises: on CPU and outside compilation, export and torch.func."""
    if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
        return False
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor)


def prefix_codes(query_prefix: Tensor, key_prefix: Tensor, prefix_tokens: int, first: int, inner: Tensor) -> Tensor:
    """Give pairs with a prefix token (class, register, graph token) codes of their own.

    The codes from `first` on are: P for prefix token p to an inner token, P for an inner token to prefix token p,
    P^2 for prefix token p to prefix token p'. With P = 1 this is BEiT's order (class to patch, patch to class,
    class to class).

    Args:
        query_prefix: int64 broadcasting to (n, M), p for a query that is prefix token p, at least P for an inner token.
        key_prefix: int64 broadcasting to (n, M), likewise for keys.
        prefix_tokens: P.
        first: the first code that the inner pairs do not use.
        inner: (..., n, M) int64, the codes of the inner pairs, with any value where a prefix token takes part.

    Returns:
        (..., n, M) int64.
    """
    p = prefix_tokens
    query_is, key_is = query_prefix < p, key_prefix < p
    codes = torch.where(query_is, first + query_prefix, inner)
    codes = torch.where(key_is, first + p + key_prefix, codes)
    return torch.where(query_is & key_is, first + 2 * p + query_prefix * p + key_prefix, codes)


def num_prefix_codes(prefix_tokens: int) -> int:
    """How many codes `prefix_codes` uses for P prefix tokens: 2 P + P^2."""
    return prefix_tokens * (prefix_tokens + 2)
