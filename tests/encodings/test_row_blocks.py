import pytest
import torch

import relbias as rb
from relbias.encodings import row_blocks
from relbias.encodings.row_blocks import in_row_blocks


@pytest.mark.parametrize("rows", [slice(None), slice(0, 7), slice(2, 6), slice(3, 3)])
@pytest.mark.parametrize("numbers", [1, 8, 9, 1000])
def test_blocks_equal_the_whole(monkeypatch, rows, numbers):
    monkeypatch.setattr(row_blocks, "_NUMBERS_PER_BLOCK", numbers)
    torch.manual_seed(0)
    x, weight = torch.randn(2, 7, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64, requires_grad=True)
    largest = []

    def function(block):
        part = x[:, block] * weight
        largest.append(part.shape[1])
        return part.sin()

    out = in_row_blocks(function, rows, 7, numbers_per_row=4)
    expected = (x[:, rows] * weight).sin()
    assert torch.equal(out, expected)
    grad = torch.randn_like(out)
    (mine,), (theirs,) = torch.autograd.grad(out, weight, grad), torch.autograd.grad(expected, weight, grad)
    torch.testing.assert_close(mine, theirs)
    assert max(largest) <= max(1, numbers // 4)


def test_no_block_is_kept_for_the_backward_pass(monkeypatch):
    monkeypatch.setattr(row_blocks, "_NUMBERS_PER_BLOCK", 1)
    kept = []
    encoding = rb.encodings.FeatureMLP(2, 4, rb.relations.Features(3), width=8)
    index = rb.relations.Features(3)(torch.randn(1, 6, 6, 3))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        (entry,) = encoding(index).entries
        bias = entry.b(slice(None))
    assert sum(kept) < 6 * 6 * 8
    kept.clear()
    monkeypatch.setattr(row_blocks, "_NUMBERS_PER_BLOCK", 2**22)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        torch.testing.assert_close(entry.b(slice(None)), bias)
    assert sum(kept) >= 6 * 6 * 8


def test_under_torch_func(monkeypatch):
    monkeypatch.setattr(row_blocks, "_NUMBERS_PER_BLOCK", 1)
    x = torch.randn(3, 2)
    grad = torch.func.grad(lambda w: in_row_blocks(lambda rows: x[rows] * w, slice(None), 3, 2).sum())
    torch.testing.assert_close(grad(torch.tensor(2.0)), x.sum())
