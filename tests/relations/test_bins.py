"""Bins given for pairs, and what they stand for."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import Bins


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int64])
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (4, 5, 2, 3), (0, 0), (4, 0, 3)])
@pytest.mark.parametrize("per_item", [False, True])
def test_gives_what_it_was_given(shape, dtype, per_item):
    bins = torch.randint(0, 6, shape).to(dtype)
    values = torch.randn(4, 12)[:, ::2] if per_item else torch.randn(6)
    index = Bins(6)(bins, values)
    expected = bins.long()
    expected = expected[None, None] if len(shape) == 2 else expected[:, None] if len(shape) == 3 else expected
    assert torch.equal(index.codes(), expected)
    assert torch.equal(index.codes(slice(1, 2)), expected[:, :, 1:2])
    assert torch.equal(index.bin_values, values if per_item else values[None])
    assert (index.shape, index.num_codes, index.batch_heads) == (shape[-2:], 6, tuple(expected.shape[:2]))


def test_transposed_has_the_same_values():
    bins, values = torch.randint(0, 6, (2, 4, 4)), torch.randn(2, 6)
    index = Bins(6)(bins, values).T
    assert torch.equal(index.codes(), bins[:, None].mT)
    assert torch.equal(index.bin_values, values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Bins(0), "num_bins must be an integer of at least 1, got 0"),
        (lambda: Bins(2)(torch.tensor([[2]]), torch.zeros(2)), "bins from 0 to 1, got 2 to 2"),
        (lambda: Bins(2)(torch.tensor([[-1]]), torch.zeros(2)), "bins from 0 to 1, got -1 to -1"),
        (lambda: Bins(2)(torch.tensor([[0]]), torch.zeros(3)), r"shape \(2,\) or \(B, 2\), got \(3,\)"),
        (lambda: Bins(2)(torch.tensor([[0]]), torch.zeros(1, 1, 2)), r"got \(1, 1, 2\)"),
        (
            lambda: Bins(2)(torch.zeros(2, 1, 1, dtype=torch.long), torch.zeros(3, 2)),
            "a batch of 2 and their values of 3",
        ),
        (lambda: Bins(2)(torch.tensor([[0.0]]), torch.zeros(2)), "bins must be integers"),
        (lambda: Bins(2)(torch.tensor([[0]]), torch.tensor([0.0, torch.inf])), "must be finite"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
