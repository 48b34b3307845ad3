import cmath

import pytest
import torch

from relbias.encodings import RoPE
from relbias.testing import EncodingTestCase


class TestRoPE(EncodingTestCase):
    encoding = RoPE
    rotary_dim = 16

    def pair(self, p):
        """The dimensions of pair p."""
        return p, p + self.rotary_dim // 2

    def turn(self, x, positions):
        """Each pair as a complex number, times e^(i position theta)."""
        x = x.clone()
        for p in range(self.rotary_dim // 2):
            a, b = self.pair(p)
            for token, position in enumerate(positions):
                turn = cmath.exp(1j * position * 10000.0 ** (-2 * p / self.rotary_dim))
                real, imaginary = x[..., token, a].clone(), x[..., token, b].clone()
                x[..., token, a] = real * turn.real - imaginary * turn.imag
                x[..., token, b] = real * turn.imag + imaginary * turn.real
        return x

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        return scale * self.turn(q, range(m - n, m)) @ self.turn(k, range(m)).mT


class TestRoPEInterleaved(TestRoPE):
    encoding = RoPE
    options = {"interleaved": True}

    def pair(self, p):
        return 2 * p, 2 * p + 1


class TestRoPEPartial(TestRoPE):
    encoding = RoPE
    options = {"rotary_dim": 6}
    rotary_dim = 6


@pytest.mark.parametrize("rotary_dim", [0, 3, 18])
def test_refuses_sizes_that_do_not_pair(rotary_dim):
    with pytest.raises(ValueError, match=r"even|rotary_dim must be an integer of at least 2, got 0"):
        RoPE(4, 16, rotary_dim=rotary_dim)


def test_long_sequences_turn_by_the_exact_angle():
    position = 65536
    positions = torch.tensor([position])
    from relbias.relations import Sequence

    encoding = RoPE(1, 64).half()
    angles = encoding(Sequence()(1, 1, positions, positions)).rotation.q_angles[0, 0, 0]
    expected = torch.tensor([position * 10000.0 ** (-p / 32) for p in range(32)], dtype=torch.float64)
    torch.testing.assert_close(angles, expected, rtol=1e-14, atol=0)
