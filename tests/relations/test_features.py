"""Real numbers given for pairs."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import Features


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (0, 0), (4, 0, 3)])
def test_gives_the_features_it_was_given(shape, dtype):
    values = torch.randn(*shape, 10).to(dtype)[..., ::2]  # non-contiguous
    index = Features(5)(values)
    expected = values if len(shape) == 3 else values[None]
    assert (index.shape, index.num_codes, index.batch_heads) == (shape[-2:], None, (expected.shape[0], 1))
    assert torch.equal(index.features(), expected)
    assert torch.equal(index.features(slice(1, 2)), expected[:, 1:2])
    assert index.to("cpu").shape == index.shape


def test_transposed():
    values = torch.randn(2, 4, 4, 3)
    transposed = Features(3)(values).T
    assert torch.equal(transposed.features(), values.transpose(1, 2))
    assert torch.equal(transposed.T.features(), values)
    with pytest.raises(ValueError, match="only a square index"):
        _ = Features(3)(values[:, :3]).T


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Features(0), "num_features must be an integer of at least 1, got 0"),
        (lambda: Features(3)(torch.zeros(2, 2, 2)), r"\(N, M, 3\) or \(B, N, M, 3\), got \(2, 2, 2\)"),
        (lambda: Features(3)(torch.zeros(2, 3)), r"got \(2, 3\)"),
        (lambda: Features(3)(torch.zeros(2, 2, 3, dtype=torch.long)), "must be floating, got torch.int64"),
        (lambda: Features(1)(torch.tensor([[[torch.inf]]])), "must be finite"),
        (lambda: Features(1)(torch.tensor([[[torch.nan]]])), "must be finite"),
        (lambda: Features(1)(torch.zeros(2, 2, 1)).codes(), "have no codes"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
