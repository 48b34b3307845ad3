import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import relbias as rb
from relbias.encodings import row_blocks
from relbias.encodings.row_blocks import in_row_blocks
from relbias.relations import Distances, Features
from relbias.testing import random_values


@pytest.mark.parametrize("rows", [slice(None), slice(0, 7), slice(2, 6), slice(3, 3)])
@pytest.mark.parametrize("numbers", [1, 8, 9, 12, 1000])
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


class _Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that is made."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.numbers = max(self.numbers, out.numel())
        return out


@pytest.mark.parametrize(
    ("name", "relation", "options", "wide"),
    [
        ("feature_mlp", Features(2), {"width": 64}, 64),
        ("gaussian_3d", Distances(2), {"num_kernels": 64}, 64),
    ],
)
def test_what_is_made_for_each_pair_is_in_memory_for_a_block(monkeypatch, name, relation, options, wide):
    monkeypatch.setattr(row_blocks, "_NUMBERS_PER_BLOCK", 2**14)
    batch, n = 2, 24
    encoding, index = (
        rb.create_encoding(name, 2, 4, relation, **options),
        relation(*random_values(relation, batch, n, n)),
    )
    (entry,) = encoding(index).entries
    with _Largest() as largest, torch.no_grad():
        assert entry.b(slice(None)).shape == (batch, 2, n, n)
    # The index's own numbers are there already.
    assert largest.numbers <= max(2**14, index.shape[0] ** 2 * batch * 2) < batch * n * n * wide
