"""Binned distances whose bins stand for numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, can_check_values, check_size
from relbias.relations.pairs import as_pairs, transpose_pairs


@dataclass(frozen=True)
class Bins(Relation):
    """A distance of each pair that was sorted into bins, where each bin has a value of its own.

    The code of a pair is its bin. The values come with the index, for each item of a batch if need be: bins fitted to a
    sample mean different distances in different samples.

    Args:
        num_bins: R; codes are integers in [0, R).

    Raises:
        ValueError: `num_bins` is not a positive integer.

    Example:
        >>> index = Bins(num_bins=3)(torch.tensor([[0, 2], [1, 0]]), torch.tensor([0.0, 1.0, 7.5]))
        >>> index.bin_values[0, index.codes()[0, 0]]
        tensor([[0.0000, 7.5000],
                [1.0000, 0.0000]])
    """

    num_bins: int

    def __post_init__(self) -> None:
        check_size("Bins' num_bins", self.num_bins, 1)

    @property
    def num_codes(self) -> int:
        return self.num_bins

    @property
    def index_type(self) -> type[BinsIndex]:
        return BinsIndex

    def __call__(self, bins: Tensor, values: Tensor) -> BinsIndex:
        """The index of one call.

        Args:
            bins: (N, M), (B, N, M) or (B, H, N, M) integers in [0, R).
            values: (R,) or (B, R), real, finite: what each bin stands for. An unreachable pair has a bin too, with a
                value of your choice, for example one that is far from all others.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a bin out of range or a value
                that is not finite.
        """
        bins, values = as_pairs("bins", bins), torch.as_tensor(values)
        if values.ndim not in (1, 2) or values.shape[-1] != self.num_bins or values.dtype.is_complex:
            raise ValueError(
                f"the values of bins have shape ({self.num_bins},) or (B, {self.num_bins}), got {tuple(values.shape)}"
            )
        batches = bins.shape[0], values.shape[0] if values.ndim == 2 else 1  # len() would fix them in an exported graph
        if 1 not in batches and batches[0] != batches[1]:
            raise ValueError(
                f"bins have a batch of {batches[0]} and their values of {batches[1]}; give the same batch size"
            )
        if can_check_values(bins) and bins.numel():
            low, high = int(bins.min()), int(bins.max())
            if low < 0 or high >= self.num_bins:
                raise ValueError(f"Bins({self.num_bins}) takes bins from 0 to {self.num_bins - 1}, got {low} to {high}")
        if can_check_values(values) and not bool(values.isfinite().all()):
            raise ValueError(
                "the values of bins must be finite, got nan or inf; give a number that is far from all others"
            )
        return BinsIndex(bins, values if values.ndim == 2 else values[None], self.num_bins)


@dataclass(frozen=True)
class BinsIndex(Index):
    """Bins given for every pair of one call, and their values. Made by calling a :class:`Bins`.

    Args:
        bins: (B or 1, H or 1, N, M) integers in [0, size).
        bin_values: (B or 1, R), real.
        size: R, the number of bins.
    """

    bins: Tensor
    bin_values: Tensor
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.bins.shape[-2], self.bins.shape[-1]

    @property
    def batch_heads(self) -> tuple[int, int]:
        return self.bins.shape[0], self.bins.shape[1]

    @property
    def num_codes(self) -> int:
        return self.size

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        return self.bins[..., rows, :].long()

    @property
    def T(self) -> BinsIndex:
        return replace(self, bins=transpose_pairs(self.bins))

    def to(self, device: torch.device | str) -> BinsIndex:
        return replace(self, bins=self.bins.to(device), bin_values=self.bin_values.to(device))
