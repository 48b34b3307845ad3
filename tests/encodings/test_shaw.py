import pytest
import torch

from relbias.encodings import Shaw
from relbias.relations import Grid
from relbias.testing import EncodingTestCase


class TestShaw(EncodingTestCase):
    encoding = Shaw
    options = {"max_distance": 3}

    def code(self, index, i, j):
        return max(-3, min(3, self.loop_offset(index, i, j))) + 3

    def gathered(self, table, index):
        n, m = index.shape
        return torch.stack([torch.stack([table[0, self.code(index, i, j)] for j in range(m)]) for i in range(n)])

    def logits(self, encoding, q, k, scale, index):
        relative = self.gathered(encoding.keys, index)  # (N, M, D), as in the paper
        return scale * torch.einsum("bhnd,bhnmd->bhnm", q, k[:, :, None] + relative)


class TestShawWithValues(TestShaw):
    encoding = Shaw
    options = {"max_distance": 3, "values": True}

    def values(self, encoding, weights, index):
        return torch.einsum("bhnm,nmd->bhnd", weights, self.gathered(encoding.values, index))


class TestShawOnGrid(TestShaw):
    encoding = Shaw
    options = {"max_distance": 1}
    relation = Grid(3, 4, prefix_tokens=1)

    def code(self, index, i, j):
        pair = self.loop_offset(index, i, j)
        if isinstance(pair[0], str):
            return 9 + [("prefix 0", "patch"), ("patch", "prefix 0"), ("prefix 0", "prefix 0")].index(pair)
        dy, dx = (max(-1, min(1, d)) for d in pair)
        return (dy + 1) * 3 + dx + 1


def test_refuses_a_negative_distance():
    with pytest.raises(ValueError, match="max_distance"):
        Shaw(4, 16, max_distance=-1)


def test_a_larger_grid_needs_nothing():
    encoding = Shaw(4, 16, Grid(3, 3), max_distance=2)
    assert encoding(encoding.grid_index(9, 12)).names == ("K",)
