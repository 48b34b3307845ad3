"""Labels of tokens, such as the voice of a note: what pairs of them are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, as_integers, can_check_values, check_size


@dataclass(frozen=True)
class Labels(Relation):
    """The pair of the labels of the query and of the key: voices of notes, places in a bar, speakers, languages.

    The code of a query with label a and a key with label b is a L + b, so R = L^2. The order matters: the pair of the
    bass and the soprano is another one than that of the soprano and the bass.

    Args:
        num_labels: L; labels are integers in [0, L).

    Raises:
        ValueError: `num_labels` is not a positive integer.

    Example:
        >>> voices = Labels(num_labels=4)
        >>> voices(torch.tensor([3, 0])).codes()[0, 0]
        tensor([[15, 12],
                [ 3,  0]])
    """

    num_labels: int

    def __post_init__(self) -> None:
        check_size("Labels' num_labels", self.num_labels, 1)

    @property
    def num_codes(self) -> int:
        return self.num_labels**2

    @property
    def index_type(self) -> type[LabelsIndex]:
        return LabelsIndex

    def __call__(self, labels: Tensor, key_labels: Tensor | None = None) -> LabelsIndex:
        """The index of one call.

        Args:
            labels: (N,) or (B, N) integers in [0, L), of the queries.
            key_labels: (M,) or (B, M) integers in [0, L), of the keys; those of the queries by default.

        Raises:
            ValueError: another shape or dtype, two batch sizes, or (on CPU, outside compile and export) a label out of
                range.
        """
        queries = self._rows("labels", labels)
        keys = queries if key_labels is None else self._rows("key_labels", key_labels)
        if 1 not in (len(queries), len(keys)) and len(queries) != len(keys):
            raise ValueError(
                f"labels have a batch of {len(queries)} and key_labels of {len(keys)}; give the same batch size"
            )
        return LabelsIndex(queries, keys, self.num_labels)

    def _rows(self, name: str, labels: Tensor) -> Tensor:
        labels = as_integers(name, labels)
        if labels.ndim not in (1, 2):
            raise ValueError(f"{name} must have shape (N,) or (B, N), got {tuple(labels.shape)}")
        if can_check_values(labels) and labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high >= self.num_labels:
                raise ValueError(
                    f"Labels({self.num_labels}) takes labels from 0 to {self.num_labels - 1}, "
                    f"got {low if low < 0 else high}; give the relation more labels or correct the input"
                )
        return (labels if labels.ndim == 2 else labels[None]).long()


@dataclass(frozen=True)
class LabelsIndex(Index):
    """The pairs of labels of one call. Made by calling a :class:`Labels`.

    Args:
        labels: (B or 1, N) int64, of the queries.
        key_labels: (B or 1, M) int64, of the keys.
        num_labels: L.
        transposed: whether the code is that of the key's label and the query's, in this order.
    """

    labels: Tensor
    key_labels: Tensor
    num_labels: int
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.labels.shape[1], self.key_labels.shape[1]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return max(len(self.labels), len(self.key_labels)), 1

    @property
    def num_codes(self) -> int:
        return self.num_labels**2

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        queries, keys = self.labels[:, None, rows, None], self.key_labels[:, None, None]
        first, second = (keys, queries) if self.transposed else (queries, keys)
        return first * self.num_labels + second

    @property
    def T(self) -> LabelsIndex:
        return LabelsIndex(self.labels, self.key_labels, self.num_labels, not self.transposed)

    def to(self, device: torch.device | str) -> LabelsIndex:
        return LabelsIndex(self.labels.to(device), self.key_labels.to(device), self.num_labels, self.transposed)
