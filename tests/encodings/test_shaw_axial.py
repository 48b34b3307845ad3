import pytest
import torch

from relbias.encodings import AxialShaw
from relbias.relations import Grid
from relbias.testing import EncodingTestCase


class TestAxialShaw(EncodingTestCase):
    encoding = AxialShaw
    options = {"max_distance": 2, "values": True}
    relation = Grid(3, 4, prefix_tokens=1)

    def gathered(self, rows, columns, index):
        def vector(offset):
            if isinstance(offset[0], str):
                kinds = [("prefix 0", "patch"), ("patch", "prefix 0"), ("prefix 0", "prefix 0")]
                return rows[0, 5 + kinds.index(offset)]
            dy, dx = (max(-2, min(2, d)) for d in offset)
            return rows[0, dy + 2] + columns[0, dx + 2]

        n, m = index.shape
        return torch.stack([torch.stack([vector(self.loop_offset(index, i, j)) for j in range(m)]) for i in range(n)])

    def logits(self, encoding, q, k, scale, index):
        relative = self.gathered(encoding.rows, encoding.columns, index)
        return scale * torch.einsum("bhnd,bhnmd->bhnm", q, k[:, :, None] + relative)

    def values(self, encoding, weights, index):
        relative = self.gathered(encoding.value_rows, encoding.value_columns, index)
        return torch.einsum("bhnm,nmd->bhnd", weights, relative)


def test_a_larger_grid_needs_nothing():
    encoding = AxialShaw(4, 16, Grid(3, 3, prefix_tokens=1), max_distance=2)
    assert encoding(encoding.grid_index(9, 12)).names == ("K",)


def test_a_clipped_grid_limits_the_tables():
    assert AxialShaw(4, 16, Grid(9, 9, max_distance=3)).columns.shape == (1, 7, 16)


def test_refuses_a_negative_distance():
    with pytest.raises(ValueError, match="'shaw_axial' max_distance"):
        AxialShaw(4, 16, Grid(3, 3), max_distance=-1)
