"""Distances sorted into bins that mean the same in every tree."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import can_check_values, check_number, check_size

UNRELATED = 10000.0
"""What the bin of pairs that are not related stands for in the Code Transformer: a number far from all distances."""


def fixed_bins(distances: Tensor, values: Tensor, related: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sort distances into bins that are the same for all trees, for `Bins(V + 1)`: each into that of the nearest value.

    The bin of a distance is the place of the nearest of V values; halfway between two, that of the one nearer to zero,
    so that a distance and its negative have bins that mirror each other where the values do. Bin V is that of pairs
    that are not related.

    Args:
        distances: (N, M) or (B, N, M), integers or floating, such as `tree_hops` or `tree_pageranks` gives.
        values: (V,), ascending, what the bins stand for; `growing_values` makes some.
        related: of the shape of `distances`, bool, whether two nodes are related; None where all are. The distance of
            a pair that is not related is not read.

    Returns:
        The bins, of the shape of `distances`, int16 in [0, V], and what they stand for, (V + 1,) float32: the values,
        then `UNRELATED`.

    Raises:
        ValueError: another shape or dtype, more than 32,766 values, or (on CPU, outside compile and export) values that
            do not ascend or are not finite, or a distance that is not a number.

    Example:
        >>> from relbias.relations import Bins, tree_hops
        >>> hops = tree_hops(torch.tensor([-1, 0, 1, 2, -1]))  # a chain of four nodes, and a tree of one
        >>> bins, values = fixed_bins(hops, torch.tensor([0.0, 1.0, 4.0]), related=hops >= 0)
        >>> bins[0], values
        (tensor([0, 1, 1, 2, 3], dtype=torch.int16), tensor([0.0000e+00, 1.0000e+00, 4.0000e+00, 1.0000e+04]))
        >>> Bins(4)(bins, values).shape
        (5, 5)
    """
    distances, values = check_distances(distances, related), torch.as_tensor(values)
    if values.ndim != 1 or not 1 <= len(values) < torch.iinfo(torch.int16).max or values.dtype.is_complex:
        raise ValueError(f"the values of bins have shape (V,) with V from 1 to 32766, got {tuple(values.shape)}")
    values = values.double()
    if can_check_values(values) and not bool(values.isfinite().all() & (values.diff() > 0).all()):
        raise ValueError("the values of bins must be finite and ascend; sort them and leave out those given twice")
    values = values.to(distances.device)
    between = (values[1:] + values[:-1]) / 2
    exact = distances.double()
    bins = torch.where(
        exact < 0,
        torch.bucketize(exact, between, out_int32=True, right=True),
        torch.bucketize(exact, between, out_int32=True),
    ).to(torch.int16)
    if related is not None:
        bins.masked_fill_(~related, len(values))
    return bins, torch.nn.functional.pad(values, (0, 1), value=UNRELATED).float()


def growing_values(near: int, further: int, growth: float = 1.3, signed: bool = False) -> Tensor:
    """Values for `fixed_bins`: each integer up to some, then values whose gaps grow from one to the next.

    0, 1, ... n, then n + g, n + g + g^2, and so on; signed also their negatives. The largest stands for all that is
    farther.

    Args:
        near: n, the largest of the integers.
        further: how many values follow.
        growth: g, how many times as wide as the gap before each gap is, at least 1.
        signed: whether the negatives are values too, for signed distances.

    Returns:
        (V,) float64, ascending; V = n + 1 + further, signed 2 (n + further) + 1.

    Raises:
        ValueError: an argument is too small or of another type.

    Example:
        >>> growing_values(near=2, further=2, growth=1.5)
        tensor([0.0000, 1.0000, 2.0000, 3.5000, 5.7500], dtype=torch.float64)
        >>> growing_values(near=1, further=1, growth=2.0, signed=True)
        tensor([-3., -1.,  0.,  1.,  3.], dtype=torch.float64)
    """
    check_size("growing_values' near", near, 0)
    check_size("growing_values' further", further, 0)
    check_number("growing_values' growth", growth, 1)
    powers = growth ** torch.arange(1, further + 1, dtype=torch.float64)
    gaps = torch.cat((torch.ones(near, dtype=torch.float64), powers))
    positive = gaps.cumsum(0)
    zero = torch.zeros(1, dtype=torch.float64)
    return torch.cat((-positive.flip(0), zero, positive) if signed else (zero, positive))


def check_distances(distances: Tensor, related: Tensor | None) -> Tensor:
    """The distances, or a ValueError unless they are real, of pairs, and as many as there are in `related`."""
    distances = torch.as_tensor(distances)
    if distances.ndim not in (2, 3) or distances.dtype.is_complex or distances.dtype == torch.bool:
        raise ValueError(
            f"distances must have shape (N, M) or (B, N, M) and be integers or floating, got "
            f"{tuple(distances.shape)} {distances.dtype}"
        )
    if related is not None and (related.shape != distances.shape or related.dtype != torch.bool):
        raise ValueError(
            f"related must have shape {tuple(distances.shape)} and be bool, got {tuple(related.shape)} {related.dtype}"
        )
    if distances.is_floating_point() and can_check_values(distances):
        wrong = distances.isnan() if related is None else distances.isnan() & related
        if bool(wrong.any()):
            raise ValueError("distances must be numbers, got nan; mark pairs without a distance as not related")
    return distances
