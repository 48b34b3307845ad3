"""The scalings of RoPE for long contexts, each by its paper's formula in plain numbers."""

import cmath
import math

import pytest
import torch

from relbias.encodings import DynamicNTKRoPE, LinearRoPE, Llama3RoPE, LongRoPE, NTKRoPE, RoPE, YaRN
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


class ScaledCase(EncodingTestCase):
    size = 16  # dimensions that turn
    amplitude = 1.0

    def frequency(self, p, length):
        """The angle per position of pair p in a call of so many keys."""
        raise NotImplementedError

    def turn(self, x, positions, length):
        """Each pair as a complex number, times amplitude e^(i position frequency)."""
        x, half = x.clone(), self.size // 2
        for p in range(half):
            for token, position in enumerate(positions):
                turn = self.amplitude * cmath.exp(1j * position * self.frequency(p, length))
                real, imaginary = x[..., token, p].clone(), x[..., token, p + half].clone()
                x[..., token, p] = real * turn.real - imaginary * turn.imag
                x[..., token, p + half] = real * turn.imag + imaginary * turn.real
        return x

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        return scale * self.turn(q, range(m - n, m), m) @ self.turn(k, range(m), m).mT


class TestLinearRoPE(ScaledCase):
    encoding = LinearRoPE
    options = {"factor": 2.5}

    def frequency(self, p, length):
        return 10000.0 ** (-2 * p / 16) / 2.5


class TestNTKRoPE(ScaledCase):
    encoding = NTKRoPE
    options = {"factor": 2.5, "rotary_dim": 6}
    size = 6

    def frequency(self, p, length):
        return (10000.0 * 2.5 ** (6 / 4)) ** (-2 * p / 6)


class TestDynamicNTKRoPE(ScaledCase):
    encoding = DynamicNTKRoPE
    options = {"factor": 2.5, "original_max_position_embeddings": 6}

    def frequency(self, p, length):
        base = 10000.0
        if length > 6:
            base *= (2.5 * length / 6 - 1.5) ** (16 / 14)
        return base ** (-2 * p / 16)


class TestYaRN(ScaledCase):
    encoding = YaRN
    options = {"factor": 8.0, "original_max_position_embeddings": 2000, "rotary_dim": 10}
    size = 10
    amplitude = 0.1 * math.log(8.0) + 1

    def frequency(self, p, length):
        def pair(turns):  # that makes so many turns within 2000 tokens
            return 10 * math.log(2000 / (turns * 2 * math.pi)) / (2 * math.log(10000.0))

        low, high = math.floor(pair(32)), math.ceil(pair(1))
        assert (low, high) == (1, 4)
        kept = 1 - min(max((p - low) / (high - low), 0), 1)
        frequency = 10000.0 ** (-2 * p / 10)
        return kept * frequency + (1 - kept) * frequency / 8


class TestLlama3RoPE(ScaledCase):
    encoding = Llama3RoPE
    options = {"factor": 3.0, "original_max_position_embeddings": 60, "base": 10000.0}

    def frequency(self, p, length):
        frequency = 10000.0 ** (-2 * p / 16)
        wavelength = 2 * math.pi / frequency
        if wavelength > 60 / 1:
            return frequency / 3
        if wavelength < 60 / 4:
            return frequency
        a = (60 / wavelength - 1) / (4 - 1)
        return (1 - a) * frequency / 3 + a * frequency


class TestLongRoPE(ScaledCase):
    encoding = LongRoPE
    options = {
        "short_factor": [1 + p / 10 for p in range(8)],
        "long_factor": [2 + p * p for p in range(8)],
        "factor": 4.0,
        "original_max_position_embeddings": 6,
    }
    amplitude = math.sqrt(1 + math.log(4) / math.log(6))

    def frequency(self, p, length):
        return 10000.0 ** (-2 * p / 16) / (2 + p * p if length > 6 else 1 + p / 10)


@pytest.mark.parametrize("cls", [LinearRoPE, NTKRoPE, YaRN, Llama3RoPE])
def test_a_factor_of_one_is_plain_rope(cls):
    scaled, plain = cls(2, 16, factor=1.0, base=10000.0), RoPE(2, 16)
    index = Sequence()(5000)
    torch.testing.assert_close(scaled(index).rotation.q_angles, plain(index).rotation.q_angles, rtol=1e-15, atol=0)
    assert scaled(index).rotation.factor == 1.0


def test_d_in_the_exponents_is_the_number_of_dimensions_that_turn():
    """The angles of a partial rotation are those of a head of just that size."""
    for cls in (LinearRoPE, NTKRoPE, DynamicNTKRoPE, YaRN, Llama3RoPE, LongRoPE, RoPE):
        index = Sequence()(5000)
        partial, whole = cls(2, 64, rotary_dim=16)(index).rotation, cls(2, 16)(index).rotation
        assert torch.equal(partial.q_angles, whole.q_angles)
        assert partial.q_angles.shape[-1] == 8


def test_the_factor_is_of_the_turned_dimensions_alone():
    rotation = YaRN(1, 8, factor=4.0, rotary_dim=4)(Sequence()(3)).rotation
    x = torch.randn(1, 1, 3, 8, dtype=torch.float64)
    y = rotation.rotate(x, rotation.q_angles)
    assert torch.equal(y[..., 4:], x[..., 4:])
    torch.testing.assert_close(y[..., :4].norm(dim=-1), (0.1 * math.log(4) + 1) * x[..., :4].norm(dim=-1))


def test_no_strength_takes_the_factor_away_too():
    encoding = YaRN(3, 8, factor=4.0, strength=0.0, dtype=torch.bfloat16)
    rotation = encoding(Sequence()(3)).rotation
    x = torch.randn(1, 3, 3, 8)
    assert torch.equal(rotation.rotate(x, rotation.q_angles), x)
    with torch.no_grad():
        encoding.strength.fill_(0.5)
    expected = (0.1 * math.log(4) + 1) ** 0.5
    torch.testing.assert_close(encoding(Sequence()(3)).rotation.factor, torch.full((3, 1, 1), expected).double())


def test_given_attention_factors_replace_the_computed_ones():
    for cls in (YaRN, LongRoPE):
        assert cls(1, 8, attention_factor=1.5)(Sequence()(3)).rotation.factor == 1.5


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("cls", [RoPE, YaRN, LongRoPE])
def test_interleaved_is_half_split_with_the_dimensions_reordered(cls, interleaved):
    """Even dimensions first, then odd ones: rotating in one layout is rotating in the other."""
    one, other = (cls(1, 12, rotary_dim=8, interleaved=flag)(Sequence()(5)).rotation for flag in (True, False))
    order = [0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11]
    x = torch.randn(1, 1, 5, 12, dtype=torch.float64)
    turned = one.rotate(x, one.q_angles)
    torch.testing.assert_close(turned[..., order], other.rotate(x[..., order], other.q_angles))
    assert not torch.allclose(turned, other.rotate(x, other.q_angles))


def test_yarn_slows_all_pairs_that_turn_too_seldom_and_keeps_all_that_turn_often():
    """Where no pair lies on the ramp; but for the first pair, at which it begins at the earliest."""
    plain = RoPE(1, 16, base=10.0)(Sequence()(5)).rotation.q_angles
    seldom, often = (
        YaRN(1, 16, factor=4.0, base=10.0, original_max_position_embeddings=n)(Sequence()(5)).rotation.q_angles
        for n in (4, 10**6)
    )
    torch.testing.assert_close(seldom[..., 1:], plain[..., 1:] / 4)
    torch.testing.assert_close(often, plain)


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (LinearRoPE, {"factor": 0.5}, "'rope_linear' factor must be a number of at least 1, got 0.5"),
        (LinearRoPE, {"factor": math.nan}, "factor must be a number of at least 1, got nan"),
        (LinearRoPE, {"factor": "4"}, "factor must be a number of at least 1, got '4'"),
        (LinearRoPE, {"factor": True}, "factor must be a number of at least 1, got True"),
        (LinearRoPE, {"factor": math.inf}, "factor must be a number of at least 1, got inf"),
        (LinearRoPE, {"base": 0}, "'rope_linear' base must be a number above 0, got 0"),
        (NTKRoPE, {"factor": 0}, "'rope_ntk' factor must be a number of at least 1, got 0"),
        (NTKRoPE, {"rotary_dim": 2}, "rotary_dim must be an integer of at least 4, got 2"),
        (DynamicNTKRoPE, {"rotary_dim": 2}, "rotary_dim must be an integer of at least 4, got 2"),
        (DynamicNTKRoPE, {"factor": 0.9}, "factor must be a number of at least 1, got 0.9"),
        (
            DynamicNTKRoPE,
            {"original_max_position_embeddings": 0},
            "original_max_position_embeddings must be an integer of at least 1",
        ),
        (YaRN, {"factor": 0.9}, "factor must be a number of at least 1"),
        (YaRN, {"base": 1.0}, "base must be a number above 1, got 1.0"),
        (YaRN, {"beta_fast": 1, "beta_slow": 2}, "beta_fast must be a number of at least 2, got 1"),
        (YaRN, {"beta_slow": 0}, "beta_slow must be a number above 0, got 0"),
        (YaRN, {"mscale": -1.0}, "mscale must be a number of at least 0, got -1.0"),
        (YaRN, {"mscale_all_dim": -9.0}, "mscale_all_dim must be a number of at least 0, got -9.0"),
        (YaRN, {"attention_factor": -1.0}, "attention_factor must be a number above 0, got -1.0"),
        (Llama3RoPE, {"factor": 0.9}, "factor must be a number of at least 1"),
        (Llama3RoPE, {"low_freq_factor": 4.0}, "high_freq_factor must be a number above 4, got 4.0"),
        (Llama3RoPE, {"low_freq_factor": -1}, "low_freq_factor must be a number of at least 0, got -1"),
        (LongRoPE, {"short_factor": [1.0] * 3}, "short_factor of 4 numbers above 0"),
        (LongRoPE, {"long_factor": [1.0, 1.0, 0.0, 1.0]}, "long_factor must be a number above 0, got 0.0"),
        (LongRoPE, {"long_factor": 2.0}, "long_factor of 4 numbers above 0, got 2.0"),
        (LongRoPE, {"attention_factor": 0}, "attention_factor must be a number above 0, got 0"),
        (
            LongRoPE,
            {"original_max_position_embeddings": 1},
            "original_max_position_embeddings must be an integer of at least 2, got 1",
        ),
        (LinearRoPE, {"rotary_dim": "8"}, "'rope_linear' rotary_dim must be an integer of at least 2, got '8'"),
        (LinearRoPE, {"rotary_dim": 3}, "'rope_linear' turns pairs of dimensions"),
        (YaRN, {"relation": Sequence(4)}, "'rope_yarn' turns by positions and takes Sequence"),
    ],
)
def test_refusals(cls, options, message):
    with pytest.raises(ValueError, match=message):
        cls(2, 8, **options)
