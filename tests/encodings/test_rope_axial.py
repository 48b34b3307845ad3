import math

import pytest
import torch

from relbias.encodings import AxialRoPE
from relbias.relations import Grid
from relbias.testing import EncodingTestCase


class TestAxialRoPE(EncodingTestCase):
    encoding = AxialRoPE
    relation = Grid(3, 4, prefix_tokens=1)

    def turn(self, x, index):
        x = x.clone()
        for patch in range(index.height * index.width):
            y, x_place = divmod(patch, index.width)
            token = index.prefix_tokens + patch
            for p in range(8):
                angle = (x_place if p < 4 else y) * 100.0 ** (-(p % 4) / 4)
                a, b = x[..., token, 2 * p].clone(), x[..., token, 2 * p + 1].clone()
                x[..., token, 2 * p] = a * math.cos(angle) - b * math.sin(angle)
                x[..., token, 2 * p + 1] = a * math.sin(angle) + b * math.cos(angle)
        return x

    def logits(self, encoding, q, k, scale, index):
        return scale * self.turn(q, index) @ self.turn(k, index).mT


def test_refuses_a_head_that_does_not_split():
    with pytest.raises(ValueError, match="multiple of 4"):
        AxialRoPE(4, 6, Grid(3, 3))


def test_any_size_of_grid():
    encoding = AxialRoPE(4, 16, Grid(3, 3))
    assert encoding(encoding.grid_index(20, 10)).rotation.q_angles.shape == torch.Size([1, 1, 200, 8])
