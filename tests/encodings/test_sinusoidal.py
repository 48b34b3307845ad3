import math

import pytest
import torch

from relbias.encodings import Sinusoidal
from relbias.relations import Grid
from relbias.testing import InputEncodingTestCase


def sinusoids(position, size):
    angles = [position / 10000.0 ** (2 * (d // 2) / size) for d in range(size)]
    return [math.sin(a) if d % 2 == 0 else math.cos(a) for d, a in enumerate(angles)]


class TestSinusoidal(InputEncodingTestCase):
    encoding = Sinusoidal

    def vectors(self, encoding, index):
        return torch.tensor([sinusoids(i, 64) for i in range(index.shape[0])], dtype=torch.float64)


class TestSinusoidalOnGrid(InputEncodingTestCase):
    encoding = Sinusoidal
    relation = Grid(3, 4, prefix_tokens=1)

    def vectors(self, encoding, index):
        rows = [[0.0] * 64]
        rows += [sinusoids(y, 32) + sinusoids(x, 32) for y in range(index.height) for x in range(index.width)]
        return torch.tensor(rows, dtype=torch.float64)


def test_refuses_an_odd_size():
    with pytest.raises(ValueError, match="multiple of 2"):
        Sinusoidal(1, 3)
