"""Real numbers between two tokens instead of a code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, can_check_values, check_size
from relbias.relations.pairs import transpose_pairs


@dataclass(frozen=True)
class Features(Relation):
    """Real numbers that describe how j stands to i: probabilities of random walks, resistances, distances.

    There are no codes, so that encodings with a table refuse it.

    Args:
        num_features: F, how many numbers a pair has.

    Raises:
        ValueError: `num_features` is not a positive integer.

    Example:
        >>> from relbias.relations import random_walks
        >>> path = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
        >>> index = Features(num_features=8)(random_walks(path, num_steps=8))
        >>> index.shape, index.features().shape
        ((3, 3), torch.Size([1, 3, 3, 8]))
    """

    num_features: int
    num_codes = None

    def __post_init__(self) -> None:
        check_size("Features' num_features", self.num_features, 1)

    @property
    def index_type(self) -> type[FeaturesIndex]:
        return FeaturesIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return (self.num_features,)

    def __call__(self, values: Tensor) -> FeaturesIndex:
        """The index of one call.

        Args:
            values: (N, M, F) or (B, N, M, F), floating, finite.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a number that is not finite.
        """
        values = torch.as_tensor(values)
        if not values.dtype.is_floating_point:
            raise ValueError(f"features must be floating, got {values.dtype}; convert them with .float()")
        if values.ndim not in (3, 4) or values.shape[-1] != self.num_features:
            raise ValueError(
                f"features must have shape (N, M, {self.num_features}) or (B, N, M, {self.num_features}), "
                f"got {tuple(values.shape)}"
            )
        if can_check_values(values) and not bool(values.isfinite().all()):
            raise ValueError(
                "features must be finite, got nan or inf; give what is infinite, such as the distance between two "
                "components of a graph, a feature of its own that is 0 or 1"
            )
        return FeaturesIndex(values if values.ndim == 4 else values[None])


@dataclass(frozen=True)
class FeaturesIndex(Index):
    """Real numbers given for every pair of one call. Made by calling a :class:`Features`.

    Args:
        values: (B or 1, N, M, F), floating.
    """

    values: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[1], self.values.shape[2]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.values.shape[0], 1

    @property
    def num_codes(self) -> None:
        return None

    @property
    def code_space(self) -> tuple[Any, ...]:
        return (self.values.shape[-1],)

    def features(self, rows: slice = ALL_ROWS) -> Tensor:
        """The numbers of some rows, (B or 1, n, M, F), in the dtype in which they were given."""
        return self.values[:, rows]

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        raise ValueError("features are real numbers and have no codes; use an encoding over Features, or Pairs")

    @property
    def T(self) -> FeaturesIndex:
        return replace(self, values=transpose_pairs(self.values.movedim(-1, 1)).movedim(1, -1))

    def to(self, device: torch.device | str) -> FeaturesIndex:
        return replace(self, values=self.values.to(device))
