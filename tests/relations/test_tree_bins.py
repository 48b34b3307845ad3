"""Bins of distances against loops, and those of a sample against the paper's rules in loops."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import (
    UNRELATED,
    Bins,
    ancestor_codes,
    fixed_bins,
    growing_values,
    sample_bins,
    tree_hops,
    tree_pageranks,
)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64, torch.float32, torch.float64])
def test_each_distance_has_the_bin_of_the_nearest_value(dtype):
    values = growing_values(near=2, further=3, growth=1.5, signed=True).tolist()
    torch.manual_seed(0)
    distances = torch.randint(-15, 16, (2, 6, 9)).to(dtype)
    distances += torch.randint(0, 2, (2, 6, 9)).to(dtype) / 2 if dtype.is_floating_point else 0
    related = torch.rand(2, 6, 9) < 0.7
    bins, stand_for = fixed_bins(distances, torch.tensor(values, dtype=torch.float64), related)
    assert bins.dtype == torch.int16
    assert stand_for.tolist() == torch.tensor([*values, UNRELATED]).tolist()
    for distance, there, place in zip(distances.flatten(), related.flatten(), bins.flatten(), strict=True):
        nearest = min(range(len(values)), key=lambda v: (abs(values[v] - float(distance)), abs(values[v])))
        assert int(place) == (nearest if there else len(values))
    assert Bins(len(values) + 1)(bins, stand_for).shape == (6, 9)


def test_a_negative_distance_has_the_mirrored_bin():
    values = growing_values(near=4, further=10, signed=True)
    distances = torch.arange(-99, 100)[None]
    bins, _ = fixed_bins(distances, values)
    assert torch.equal(bins + bins.flip(1), torch.full_like(bins, len(values) - 1))
    halfway, _ = fixed_bins(torch.tensor([[-3, 3]]), torch.tensor([-4, -2, 0, 2, 4]))
    assert halfway.tolist() == [[1, 3]]


def test_bins_of_trees_mean_the_same_in_a_batch_and_alone():
    first, second = torch.tensor([-1, 0, 1, 2, 3, 4]), torch.tensor([-1, 0, 0, 0, 1, -1])
    values = torch.linspace(0, 5, 9)
    ranks = tree_pageranks(torch.stack((first, second)))
    bins, stand_for = fixed_bins(ranks, values, related=ranks <= 5)
    for b, parents in enumerate((first, second)):
        alone = tree_pageranks(parents)
        assert torch.equal(fixed_bins(alone, values, alone <= 5)[0], bins[b])
    assert (bins[1, :5, 5] == 9).all()
    assert torch.equal(stand_for[:9], values)


def test_large_distances_keep_their_digits():
    """In float32, 2^25 + 2 would be 2^25."""
    bins, _ = fixed_bins(torch.tensor([[2**25 + 2]]), torch.tensor([0, 2**25, 2**25 + 3]))
    assert bins.tolist() == [[2]]


def test_growing_values():
    values = growing_values(near=3, further=4)
    assert values[:4].tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(values[3:].diff(), 1.3 ** torch.arange(1, 5, dtype=torch.float64))
    assert torch.equal(growing_values(3, 4, signed=True), torch.cat((-values[1:].flip(0), values)))
    assert growing_values(0, 0).tolist() == [0]


def ends(values, parts, growth):
    """Where the sum of square roots of the gaps reaches parts that are equal or grow."""
    values = sorted(values)
    sums = [0.0]
    for lower, upper in pairwise(values):
        sums.append(sums[-1] + math.sqrt(upper - lower))
    widths = [growth**part for part in range(parts)]
    places = [sum(widths[:part]) / sum(widths) * sums[-1] for part in range(parts + 1)]
    return list(numpy.interp(places, sums, values))


def paper_values(found, count):
    if len(set(found)) < count:
        return sorted(set(found))
    if min(found) >= 0:
        return [*range(9), *ends([x for x in found if x > 9], count - 10, 1.0)]
    below, above = [-x for x in found if x < -4], [x for x in found if x > 4]
    of_below = math.floor(len(below) / (len(below) + len(above)) * (count - 9))
    sides = []
    for side, parts in ((below, of_below), (above, count - 9 - of_below)):
        sides.append([] if not parts else [max(side)] if parts == 1 else ends(side, parts, 1.3)[1:])
    return [*(-x for x in reversed(sides[0])), *range(-4, 5), *sides[1]]


def paper_bin(distance, values):
    """Counted from 1: the next value away from zero; 0 where there is none."""
    if distance < 0:
        return sum(value <= distance for value in values)
    return 1 + sum(value < distance for value in values)


@given(
    seed=st.integers(0, 10**6),
    low=st.sampled_from([0, -3, -40, -1200]),
    high=st.sampled_from([3, 40, 1200]),
    num_bins=st.sampled_from([12, 32]),
)
@settings(max_examples=40, deadline=None)
def test_bins_of_integers_of_a_sample(seed, low, high, num_bins):
    generator = torch.Generator().manual_seed(seed)
    distances = torch.randint(low, high + 1, (13, 13), generator=generator)
    related = torch.rand(13, 13, generator=generator) < 0.8
    bins, stand_for = sample_bins(distances, num_bins, related)
    pairs = list(zip(distances.flatten().tolist(), related.flatten().tolist(), strict=True))
    values = paper_values([d for d, r in pairs if r and abs(d) < 1000], num_bins - 1)
    assert len(values) < num_bins
    expected = [UNRELATED, *values] + [UNRELATED] * (num_bins - 1 - len(values))
    torch.testing.assert_close(stand_for, torch.tensor(expected, dtype=torch.float32))
    single = stand_for[1 : 1 + len(values)].tolist()  # rounded as ours, so that equal numbers compare equal
    assert bins.flatten().tolist() == [paper_bin(d, single) if r and abs(d) < 1000 else 0 for d, r in pairs]
    assert Bins(num_bins)(bins, stand_for).shape == (13, 13)


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_bins_of_real_numbers_of_a_sample(share):
    torch.manual_seed(0)
    distances, related = torch.rand(15, 15, dtype=torch.float64) * 5, torch.rand(15, 15) < share
    bins, stand_for = sample_bins(distances, 12, related)
    found = distances[related].tolist()
    values = ends(found, 11, 1.0) if share == 1 else [UNRELATED, *ends(found, 10, 1.0)]
    torch.testing.assert_close(stand_for, torch.tensor(values, dtype=torch.float32))
    for distance, there, place in zip(distances.flatten(), related.flatten(), bins.flatten(), strict=True):
        below = int((stand_for[0 if share == 1 else 1 :] < distance.float()).sum())
        assert int(place) == ((below if share == 1 else below + 1) if there else 0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_small_integers_are_sorted_as_large_ones(dtype):
    distances = torch.arange(-60, 61).view(11, 11)
    bins, values = sample_bins(distances.to(dtype), 32)
    assert torch.equal(bins, sample_bins(distances, 32)[0])
    assert torch.equal(values, sample_bins(distances, 32)[1])
    least = torch.tensor([[torch.iinfo(dtype).min, 3]], dtype=dtype)
    assert sample_bins(least, 12)[0].tolist() == [[1, 2] if dtype == torch.int8 else [0, 1]]
    assert sample_bins(torch.tensor([[-1000, -999, 999, 1000]]), 12)[0].tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize("different", [10, 11])
def test_as_many_integers_as_there_are_bins(different):
    """With the pairs that are not related, 11 integers leave no bin of 12 free: then they share some."""
    _, values = sample_bins(torch.arange(0, 2 * different, 2)[None], 12)
    expected = paper_values(range(0, 2 * different, 2), 11)
    assert values[1 : 1 + len(expected)].tolist() == expected
    assert (expected == [*range(0, 2 * different, 2)]) == (different == 10)


def test_distances_are_compared_in_single_precision():
    bins, values = sample_bins(torch.tensor([[0.7, 1.5], [2.0, 3.0]], dtype=torch.float64), 12)
    assert float(values[0]) < 0.7
    assert int(bins[0, 0]) == 0


def test_a_sample_of_a_tree():
    parents = torch.arange(-1, 99)
    codes = ancestor_codes(parents, 200)
    bins, values = sample_bins(codes.long() - 200, 32, codes <= 400)
    assert values[bins.long()][50, 46:55].tolist() == list(range(-4, 5))
    assert values[bins.long()].diagonal().tolist() == [0.0] * 100
    assert sample_bins(tree_hops(torch.tensor([-1])))[0].tolist() == [[1]]
    bins, values = sample_bins(torch.zeros(0, 0, dtype=torch.int64))
    assert bins.shape == (0, 0)
    assert (values == UNRELATED).all()


ONES = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fixed_bins(torch.ones(2), ONES[0]), r"shape \(N, M\) or \(B, N, M\).*got \(2,\)"),
        (lambda: fixed_bins(ONES > 0, ONES[0]), "torch.bool"),
        (lambda: fixed_bins(ONES, ONES), r"shape \(V,\) with V from 1 to 32766, got \(2, 2\)"),
        (lambda: fixed_bins(ONES, torch.ones(0)), r"got \(0,\)"),
        (lambda: fixed_bins(ONES, torch.tensor([1.0, 1.0])), "must be finite and ascend"),
        (lambda: fixed_bins(ONES, torch.tensor([0.0, torch.inf])), "must be finite and ascend"),
        (lambda: fixed_bins(ONES, torch.ones(1), ONES[0] > 0), r"related must have shape \(2, 2\).*got \(2,\)"),
        (lambda: fixed_bins(ONES, torch.ones(1), ONES), "be bool, got .* torch.float32"),
        (lambda: fixed_bins(ONES * torch.nan, torch.ones(1)), "must be numbers, got nan"),
        (lambda: sample_bins(ONES, 11), "num_bins must be an integer of at least 12, got 11"),
        (lambda: sample_bins(ONES, 32768), "num_bins must be at most 32767, got 32768"),
        (lambda: sample_bins(ONES / 0), "distances must be finite; mark pairs without a distance as not related"),
        (lambda: sample_bins(ONES[None]), r"of one tree, \(N, N\), got \(1, 2, 2\)"),
        (lambda: growing_values(-1, 2), "near must be an integer of at least 0"),
        (lambda: growing_values(1, 2, growth=0.5), "growth must be a number of at least 1, got 0.5"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_pair_that_is_not_related_may_have_no_distance():
    bins, _ = fixed_bins(torch.tensor([[torch.nan, 1.0]]), torch.tensor([0.0, 1.0]), torch.tensor([[False, True]]))
    assert bins.tolist() == [[2, 1]]
