import pytest
import torch

from relbias.encodings import Table
from relbias.relations import Grid, Hops, Pairs, Sequence, Volume
from relbias.testing import EncodingTestCase


class TestTable(EncodingTestCase):
    encoding = Table
    relation = Sequence(max_distance=4)

    def code(self, index, i, j):
        """The row of the table for query i and key j, or (B,) of them."""
        return max(-4, min(4, self.loop_offset(index, i, j))) + 4

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        rows = [[encoding.table[:, self.code(index, i, j)] for j in range(m)] for i in range(n)]
        bias = torch.stack([torch.stack(row) for row in rows])  # (N, M, H) or (N, M, H, B)
        return scale * q @ k.mT + (bias.permute(2, 0, 1) if bias.ndim == 3 else bias.permute(3, 2, 0, 1))


class TestTableOfGrid(TestTable):
    encoding = Table
    relation = Grid(3, 4, prefix_tokens=2)

    def code(self, index, i, j):
        pair = self.loop_offset(index, i, j)
        if isinstance(pair[0], str):
            kinds = [("prefix 0", "patch"), ("prefix 1", "patch"), ("patch", "prefix 0"), ("patch", "prefix 1")]
            kinds += [(f"prefix {a}", f"prefix {b}") for a in range(2) for b in range(2)]
            return 5 * 7 + kinds.index(pair)
        return (pair[0] + 2) * 7 + pair[1] + 3


class TestTableOfVolume(TestTable):
    encoding = Table
    relation = Volume(2, 1, 3, prefix_tokens=1, max_distance=1)

    def code(self, index, i, j):
        offsets = self.loop_offset(index, i, j)
        if isinstance(offsets[0], str):
            kinds = [("prefix 0", "patch"), ("patch", "prefix 0"), ("prefix 0", "prefix 0")]
            return 27 + kinds.index(offsets)
        dz, dy, dx = (max(-1, min(1, offset)) for offset in offsets)
        return 9 * (dz + 1) + 3 * (dy + 1) + dx + 1


class TestTableOfHops(TestTable):
    encoding = Table
    relation = Hops(max_distance=3)

    def code(self, index, i, j):
        return torch.tensor([{-1: 5, 4: 4}.get(d, d) for d in self.loop_offset(index, i, j).tolist()])


class TestTableOfPairs(TestTable):
    encoding = Table
    relation = Pairs(num_codes=5)

    def code(self, index, i, j):
        return self.loop_offset(index, i, j)


def test_refuses_a_relation_without_a_limit():
    with pytest.raises(ValueError, match="max_distance"):
        Table(4, 16)
