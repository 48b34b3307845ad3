"""One-dimensional offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Mapped, Relation, check_size


@dataclass(frozen=True)
class Sequence(Relation):
    """The offset j - i between the positions of a key and a query.

    With `max_distance` m the offset is clipped to [-m, m] and its code is offset + m, so R = 2 m + 1. Without it
    there is a code for every integer: encodings that clip or bucket for themselves take it, a table does not.

    Args:
        max_distance: the largest distance with a code of its own, in positions; None for no limit.

    Raises:
        ValueError: `max_distance` is negative or not an integer.

    Example:
        >>> sequence = Sequence(max_distance=2)
        >>> sequence.num_codes
        5
        >>> sequence(2, 4).codes()[0, 0]  # the queries are the last two positions
        tensor([[0, 1, 2, 3],
                [0, 0, 1, 2]])
    """

    max_distance: int | None = None

    def __post_init__(self) -> None:
        if self.max_distance is not None:
            check_size("Sequence's max_distance", self.max_distance, 0)

    @property
    def num_codes(self) -> int | None:
        return None if self.max_distance is None else 2 * self.max_distance + 1

    @property
    def index_type(self) -> type[SequenceIndex]:
        return SequenceIndex

    def __call__(
        self, n: int, m: int | None = None, positions: Tensor | None = None, key_positions: Tensor | None = None
    ) -> SequenceIndex:
        """The index of one call.

        Args:
            n: N, the number of queries.
            m: M, the number of keys; N by default. With M != N the queries are the last N positions.
            positions: (N,) or (B, N) integers, the queries' positions; without it M - N ... M - 1.
            key_positions: (M,) or (B, M) integers, the keys' positions. With `positions` and M = N the default is
                the same positions.

        Raises:
            ValueError: a length is negative, or positions have another shape or are not integers.
        """
        m = n if m is None else m
        if isinstance(n, float) or isinstance(m, float) or n < 0 or m < 0:
            raise ValueError(f"a sequence has lengths, integers of at least 0; got {n} queries and {m} keys")
        if positions is None and key_positions is not None:
            raise ValueError("key_positions were given without positions; give both")
        if positions is not None:
            if key_positions is None and n != m:
                raise ValueError(f"positions of {n} queries and {m} keys need key_positions as well")
            key_positions = positions if key_positions is None else key_positions
            positions = _as_rows("positions", positions, n)
            key_positions = _as_rows("key_positions", key_positions, m)
            if 1 not in (len(positions), len(key_positions)) and len(positions) != len(key_positions):
                raise ValueError(
                    f"positions have a batch of {len(positions)} and key_positions of {len(key_positions)}; "
                    "give the same batch size"
                )
        return SequenceIndex(n, m, self.max_distance, positions, key_positions)


def _as_rows(name: str, positions: Tensor, length: int) -> Tensor:
    positions = torch.as_tensor(positions)
    if positions.dtype.is_floating_point or positions.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {positions.dtype}")
    if positions.ndim not in (1, 2) or positions.shape[-1] != length:
        raise ValueError(f"{name} must have shape ({length},) or (B, {length}), got {tuple(positions.shape)}")
    return (positions if positions.ndim == 2 else positions[None]).long()


@dataclass(frozen=True)
class SequenceIndex(Index):
    """The offsets of one call. Made by calling a :class:`Sequence`.

    Args:
        n: N, the number of queries.
        m: M, the number of keys.
        max_distance: the distance at which offsets are clipped, in positions, or None.
        query_positions: (B or 1, N) int64, or None for the last N of M positions.
        key_positions: (B or 1, M) int64, or None.
        sign: 1, or -1 for the transposed index.
    """

    n: int
    m: int
    max_distance: int | None = None
    query_positions: Tensor | None = None
    key_positions: Tensor | None = None
    sign: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.m

    @property
    def batch_heads(self) -> tuple[int, int]:
        if self.query_positions is None or self.key_positions is None:
            return 1, 1
        return max(len(self.query_positions), len(self.key_positions)), 1

    @property
    def of_sizes(self) -> bool:
        return self.query_positions is None and self.key_positions is None

    @property
    def num_codes(self) -> int | None:
        return None if self.max_distance is None else 2 * self.max_distance + 1

    def positions(self, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """The positions of the queries, (B or 1, N) int64, and of the keys, (B or 1, M) int64.

        In the transposed index they have the opposite sign, as do their differences.
        """
        if self.query_positions is not None and self.key_positions is not None:
            return self.sign * self.query_positions, self.sign * self.key_positions
        keys = torch.arange(self.m, device=device)
        queries = torch.arange(self.n, device=device) + (self.m - self.n)
        return self.sign * queries[None], self.sign * keys[None]

    def _clip(self, differences: Tensor) -> Tensor:
        return differences if self.max_distance is None else differences.clamp(-self.max_distance, self.max_distance)

    def differences(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        """The (clipped) offsets j - i of some rows, (B or 1, 1, n, M) int64."""
        queries, keys = self.positions(device)
        return self._clip(keys[:, None, None, :] - queries[:, None, rows, None])

    def offsets(self, device: torch.device | None = None) -> Tensor | None:
        """The (clipped) offsets of the N + M - 1 diagonals, (N + M - 1,) int64; None with given positions."""
        if self.query_positions is not None:
            return None
        return self._clip(self.sign * (torch.arange(max(self.n + self.m - 1, 0), device=device) - (self.m - 1)))

    def _code(self, differences: Tensor) -> Tensor:
        if self.max_distance is None:
            raise ValueError(
                "the offsets of Sequence() have no codes, since any integer may occur; "
                "give the relation a limit, for example Sequence(max_distance=128)"
            )
        return differences + self.max_distance

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self._code(self.differences(rows, device))

    def diagonals(self, device: torch.device | None = None) -> Tensor | None:
        offsets = self.offsets(device)
        return None if offsets is None else self._code(offsets)

    def clip(self, max_distance: int) -> SequenceIndex:
        """The same index with offsets clipped to at most `max_distance` positions."""
        limit = max_distance if self.max_distance is None else min(max_distance, self.max_distance)
        return replace(self, max_distance=limit)

    def map(self, function: Callable[[Tensor], Tensor], num_codes: int) -> Mapped:
        """An index of the codes function(j - i), for example buckets.

        Args:
            function: elementwise on int64 tensors of any shape; gives codes in [0, num_codes).
            num_codes: R.
        """
        return Mapped(self, function, num_codes)

    @property
    def T(self) -> SequenceIndex:
        return replace(self, sign=-self.sign)

    def to(self, device: torch.device | str) -> SequenceIndex:
        if self.query_positions is None or self.key_positions is None:
            return self
        return replace(
            self, query_positions=self.query_positions.to(device), key_positions=self.key_positions.to(device)
        )
