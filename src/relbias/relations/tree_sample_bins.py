"""Distances sorted into the bins that the Code Transformer makes for each function anew."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import can_check_values, check_size
from relbias.relations.tree_bins import UNRELATED, check_distances

_EXACT = 9
_GROWTH = 1.3
_LONGEST = 1000


def sample_bins(distances: Tensor, num_bins: int = 32, related: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sort the distances of one tree into bins made from them, as the Code Transformer does, for `Bins(R)`.

    For comparison with the paper (https://arxiv.org/abs/2103.11318): a bin then means other distances in another tree,
    so that prefer `fixed_bins`. Bin 0 is that of pairs that are not related. Integers have a bin each if there are
    fewer than R - 1 of them; else nine around zero have (-4 to 4, without negative ones 0 to 8) and the others share
    what is left, on each side of zero by their number of pairs. The values v_1 < v_2 < ... of a side then are cut where
    sum_k sqrt(v_k - v_(k-1)) reaches equal parts, with negative distances parts that grow by 1.3, and a distance has
    the bin of the next value away from zero. Floating distances are all cut into equal parts; if all pairs are
    related, bin 0 is theirs too.

    Args:
        distances: (N, N), integers, of which those from 1,000 on count as not related, or floating.
        num_bins: R, from 12 to 32767.
        related: (N, N) bool, whether two nodes are related; None where all are.

    Returns:
        The bins, (N, N) int16 in [0, R), and what they stand for, (R,) float32; `UNRELATED` for bin 0 and for those
        that no pair has.

    Raises:
        ValueError: another shape or dtype, a number of bins out of range, or (on CPU, outside compile and export) a
            distance that is not a finite number.

    Example:
        >>> distances = torch.tensor([[0, 3, 7], [-3, 0, 7], [-7, -7, 0]])
        >>> bins, values = sample_bins(distances, num_bins=12)
        >>> bins
        tensor([[3, 4, 5],
                [2, 3, 5],
                [1, 1, 3]], dtype=torch.int16)
        >>> values[:6].tolist()
        [10000.0, -7.0, -3.0, 0.0, 3.0, 7.0]
    """
    check_size("sample_bins' num_bins", num_bins, _EXACT + 3)
    if num_bins > torch.iinfo(torch.int16).max:
        raise ValueError(f"sample_bins' num_bins must be at most 32767, got {num_bins}")
    distances = check_distances(distances, related)
    if distances.ndim != 2:
        raise ValueError(
            f"sample_bins takes the distances of one tree, (N, N), got {tuple(distances.shape)}; give each tree alone"
        )
    floating = distances.is_floating_point()
    related = torch.ones_like(distances, dtype=torch.bool) if related is None else related
    if floating:
        if can_check_values(distances) and bool((distances.isinf() & related).any()):
            raise ValueError("distances must be finite; mark pairs without a distance as not related")
    else:
        distances = distances.long()  # which holds _LONGEST
        related = related & (distances > -_LONGEST) & (distances < _LONGEST)
    found = distances[related].double()
    first = 0 if floating and bool(related.all()) else 1  # the bin of the least value
    if not len(found):
        values = found
    elif floating:
        values = _cut(found.unique(), num_bins - first - 1, 1.0)
    else:
        values = _of_integers(found, num_bins - 1)
    # As in the paper's code, values and distances are compared in single precision.
    values, exact = values.float(), distances.float()
    bins = torch.bucketize(exact, values) + first  # the next value upwards
    if not floating:
        downwards = torch.bucketize(exact, values, right=True)  # bin 0 if there is none
        bins = torch.where(exact < 0, downwards, bins)
    bins = torch.where(related, bins, 0).to(torch.int16)
    return bins, torch.nn.functional.pad(values, (first, num_bins - first - len(values)), value=UNRELATED)


def _of_integers(found: Tensor, count: int) -> Tensor:
    """The values of at most `count` bins for integers, ascending."""
    different = found.unique()
    if len(different) < count:
        return different
    shared = count - _EXACT
    if different[0] >= 0:
        exact = torch.arange(_EXACT, dtype=found.dtype, device=found.device)
        return torch.cat((exact, _cut(different[different > _EXACT], shared - 1, 1.0)))
    half = _EXACT // 2
    exact = torch.arange(-half, half + 1, dtype=found.dtype, device=found.device)
    below, above = -found[found < -half], found[found > half]
    of_below = int(len(below) / (len(below) + len(above)) * shared)
    sides = []
    for side, parts in ((below, of_below), (above, shared - of_below)):
        values = side.unique()
        sides.append(_cut(values, parts, _GROWTH)[1:] if parts > 1 else values[-1:] if parts else values[:0])
    return torch.cat((-sides[0].flip(0), exact, sides[1]))


def _cut(values: Tensor, parts: int, growth: float) -> Tensor:
    """The parts + 1 ends of parts of equal or growing sums of square roots of the gaps between ascending values."""
    sums = torch.nn.functional.pad(values.diff().sqrt().cumsum(0), (1, 0))
    ends = torch.linspace(0, 1, parts + 1, dtype=values.dtype, device=values.device)
    if growth > 1:
        ends = (growth ** (parts * ends) - 1) / (growth**parts - 1)
    if len(values) == 1:
        return values.expand(parts + 1)
    ends = ends * sums[-1]
    after = torch.searchsorted(sums, ends, right=True).clamp(1, len(sums) - 1)
    share = (ends - sums[after - 1]) / (sums[after] - sums[after - 1])
    return torch.lerp(values[after - 1], values[after], share.clamp(max=1.0))
