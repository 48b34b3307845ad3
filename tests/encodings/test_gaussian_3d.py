import math

import pytest
import torch

from relbias.encodings import Gaussian3D
from relbias.relations import Distances, pairwise_distances
from relbias.testing import EncodingTestCase


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


class TestGaussian3D(EncodingTestCase):
    encoding = Gaussian3D
    options = {"num_kernels": 5}
    relation = Distances(num_types=3)

    def make(self, dtype=torch.float64, **options):
        encoding = super().make(dtype, **options)
        torch.nn.init.uniform_(encoding.widths, 0.5, 3.0)  # as narrow as in training, not singular
        encoding.widths.data[::2] *= -1  # their sign does not matter
        return encoding

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        biases = torch.empty(2, 4, n, m, dtype=torch.float64)
        for b in range(2):
            for i in range(n):
                for j in range(m):
                    kind = int(index.types[b, i, j])
                    x = encoding.factors[kind] * index.values[b, i, j].double() + encoding.shifts[kind]
                    s = encoding.widths.abs() + 1e-5
                    kernels = (-((x - encoding.means) ** 2) / (2 * s**2)).exp() / (math.sqrt(2 * math.pi) * s)
                    hidden = gelu(encoding.hidden.weight @ kernels + encoding.hidden.bias)
                    biases[b, :, i, j] = encoding.out.weight @ hidden + encoding.out.bias
        return scale * q @ k.mT + biases


def test_moving_and_turning_the_atoms_changes_nothing():
    torch.manual_seed(0)
    encoding, relation = Gaussian3D(2, 4, Distances()).double(), Distances()
    places = torch.randn(6, 3, dtype=torch.float64)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    (here,), (there,) = (encoding(relation(pairwise_distances(x))).entries for x in (places, places @ turn + 7.0))
    torch.testing.assert_close(here.b(slice(None)), there.b(slice(None)))
    assert here.b(slice(None)).std() > 1e-3


def test_refusals():
    with pytest.raises(ValueError, match="'gaussian_3d' num_kernels must be an integer of at least 1, got 0"):
        Gaussian3D(4, 16, Distances(), num_kernels=0)
    with pytest.raises(ValueError, match="takes an index made by Distances"):
        Gaussian3D(4, 16, Distances(2))(Distances(1)(torch.zeros(5, 5)))
