"""T5's logarithmic buckets of the offset."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relbias.relations.base import check_size


def t5_buckets(offsets: Tensor, num_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The bucket of each offset j - i.

    Of the n buckets of a direction (half of all when bidirectional) the first n / 2 hold one distance each, the rest
    grow logarithmically up to max_distance; all that is farther shares the last. The keys after the query have the
    upper half; in the other case they share bucket 0.

    Args:
        offsets: int64 of any shape, in positions.
        num_buckets: R.
        max_distance: the distance from which on all share the last bucket, in positions.
        bidirectional: whether both directions have buckets.

    Returns:
        int64 of the same shape, in [0, R).

    Example:
        >>> t5_buckets(torch.tensor([-200, -8, -1, 0, 1, 8, 200]), 32, 128, True)
        tensor([15,  8,  1,  0, 17, 24, 31])
    """
    base: Tensor | int = 0
    if bidirectional:
        num_buckets //= 2
        base = num_buckets * (offsets > 0)
        distances = offsets.abs()
    else:
        distances = (-offsets).clamp(min=0)
    exact = num_buckets // 2
    # float32 as in T5's own code: the edges of the buckets depend on the rounding of the logarithm.
    ratio = torch.log(distances.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    large = (exact + (ratio * (num_buckets - exact)).long()).clamp(max=num_buckets - 1)
    return base + torch.where(distances < exact, distances, large)


def check_buckets(label: str, num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    """Raise ValueError unless the buckets work; `label` is the encoding's."""
    check_size(f"{label} num_buckets", num_buckets, 2)
    check_size(f"{label} max_distance", max_distance, 1)
    least = 4 if bidirectional else 2
    if num_buckets < least or num_buckets % 2:
        raise ValueError(f"{label} needs an even number of buckets, at least {least}, got num_buckets={num_buckets}")
    exact = num_buckets // least
    if max_distance <= exact:
        raise ValueError(
            f"{label} has {exact} buckets of one distance each, so max_distance must be above {exact}, "
            f"got {max_distance}"
        )
