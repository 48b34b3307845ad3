import math

import pytest
import torch

from relbias.encodings import IRPE
from relbias.encodings.piecewise import piecewise_index
from relbias.relations import Grid
from relbias.testing import EncodingTestCase


def g(x):
    """With alpha 1.9, beta 3.8, gamma 15.2."""
    if abs(x) <= 1.9:
        return x
    far = min(3, round(1.9 + math.log(abs(x) / 1.9) / math.log(8) * 1.9))
    return far if x > 0 else -far


class TestIRPE(EncodingTestCase):
    """Product, contextual, on q, k and v, tables for each head."""

    encoding = IRPE
    options = {"rpe_on": "qkv", "shared_head": False}
    relation = Grid(3, 6, prefix_tokens=1)

    def codes(self, offset):
        if isinstance(offset[0], str):
            return [49]
        return [(g(offset[0]) + 3) * 7 + g(offset[1]) + 3]

    def gathered(self, table, index, transposed=False):
        """(H or 1, N, M, ...), summed over relations."""
        n, m = index.shape
        total = 0
        for t in range(len(table)):
            rows = []
            for i in range(n):
                pairs = [(j, i) if transposed else (i, j) for j in range(m)]
                rows.append(torch.stack([table[t][:, self.codes(self.loop_offset(index, *p))[t]] for p in pairs], 1))
            total = total + torch.stack(rows, 1)
        return total

    def logits(self, encoding, q, k, scale, index):
        total = scale * q @ k.mT
        if encoding.keys is not None:
            total = total + scale * torch.einsum("bhid,hijd->bhij", q, self.heads(encoding.keys, index))
        if encoding.queries is not None:
            total = total + scale * torch.einsum("bhjd,hijd->bhij", k, self.heads(encoding.queries, index, True))
        return total

    def heads(self, table, index, transposed=False):
        gathered = self.gathered(table, index, transposed)
        return gathered.expand(4, *gathered.shape[1:])

    def values(self, encoding, weights, index):
        if encoding.values is None:
            return super().values(encoding, weights, index)
        return torch.einsum("bhij,hijd->bhid", weights, self.heads(encoding.values, index))


class TestIRPECrossBias(TestIRPE):
    options = {"method": "cross", "mode": "bias", "rpe_on": "qk"}
    relation = Grid(3, 6, prefix_tokens=2)

    def codes(self, offset):
        return [7, 7] if isinstance(offset[0], str) else [g(offset[0]) + 3, g(offset[1]) + 3]

    def logits(self, encoding, q, k, scale, index):
        return scale * q @ k.mT + self.gathered(encoding.keys, index) + self.gathered(encoding.queries, index, True)


class TestIRPEQuantization(TestIRPE):
    options = {"method": "quantization"}
    relation = Grid(3, 4)

    def codes(self, offset):
        return [g(offset[0] ** 2 + offset[1] ** 2)]


def test_quantization_takes_the_squared_distance():
    codes = IRPE(2, 4, Grid(1, 4), method="quantization")(Grid(1, 4)()).entries[0].index.codes()[0, 0, 0]
    assert codes.tolist() == [0, 1, 3, 3]  # g(0), g(1), g(4), g(9)
    codes = IRPE(2, 4, Grid(1, 4), method="euclidean")(Grid(1, 4)()).entries[0].index.codes()[0, 0, 0]
    assert codes.tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("ratio", [0.5, 1.9, 4.3])
def test_buckets_grow_and_are_odd_and_bounded(ratio):
    x = torch.arange(-3000, 3001)
    buckets = piecewise_index(x, ratio)
    assert bool((buckets.diff() >= 0).all())
    assert torch.equal(buckets, -buckets.flip(0))
    assert int(buckets.max()) == int(2 * ratio)


def test_any_size_of_grid():
    encoding = IRPE(4, 16, Grid(3, 3, prefix_tokens=1), rpe_on="qk")
    (near, _), (far, _) = (encoding(encoding.grid_index(*size)).entries for size in ((3, 3), (20, 31)))
    patches = torch.tensor([0, *(1 + 31 * y + x for y in range(3) for x in range(3))])
    assert torch.equal(far.index.codes()[0, 0][patches][:, patches], near.index.codes()[0, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "Product"}, "the methods euclidean, quantization, cross, product; got 'Product'"),
        ({"mode": "ctx"}, "the modes contextual, bias; got 'ctx'"),
        ({"rpe_on": ""}, "one or more of k, q and v"),
        ({"rpe_on": "kk"}, "got 'kk'"),
        ({"rpe_on": "kx"}, "got 'kx'"),
        ({"rpe_on": "kv", "mode": "bias"}, "no bias on v"),
        ({"ratio": 0.2}, "at least 0.5"),
        ({"ratio": float("nan")}, "at least 0.5"),
        ({"ratio": float("inf")}, "at least 0.5, got inf"),
        ({"rpe_on": 7}, "one or more of k, q and v.*got 7"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        IRPE(4, 16, Grid(3, 3), **options)
