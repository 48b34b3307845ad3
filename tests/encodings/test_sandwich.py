import math

import pytest
import torch

from relbias.encodings import Sandwich
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


def bias(head, num_heads, dim, offset, first=0):
    total = sum(math.cos(abs(offset) / 10000 ** (2 * n / dim)) for n in range(first, dim // 2 + first))
    return num_heads / (8 * (head + 1)) * total


class TestSandwich(EncodingTestCase):
    encoding = Sandwich
    options = {"dim": 12}

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        dense = [
            [[bias(h, 4, 12, self.loop_offset(index, i, j)) for j in range(m)] for i in range(n)] for h in range(4)
        ]
        return scale * q @ k.mT + torch.tensor(dense, dtype=q.dtype)


def test_frequencies_begin_at_one_radian_per_position():
    # Where they begin at n = 1, the bias differs, and not by a constant that the softmax would not see.
    n = 30
    (entry,) = Sandwich(1, 8)(Sequence()(1, n)).entries
    got = entry.b[0, :n] - entry.b[0, n - 1]
    ours = [bias(0, 1, 128, offset) - bias(0, 1, 128, 0) for offset in range(1 - n, 1)]
    theirs = [bias(0, 1, 128, offset, first=1) - bias(0, 1, 128, 0, first=1) for offset in range(1 - n, 1)]
    assert got.tolist() == pytest.approx(ours, rel=1e-12, abs=1e-12)
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) > 0.1


@pytest.mark.parametrize(("dim", "message"), [(7, "dim must be even, got 7"), (0, "at least 2"), (8.0, "an integer")])
def test_refuses_an_odd_dim(dim, message):
    with pytest.raises(ValueError, match=message):
        Sandwich(4, 16, dim=dim)
