"""Angles of 65,536 tokens: the same numbers in every dtype, and those of 50-digit arithmetic."""

from __future__ import annotations

import pytest
import torch
from mpmath import ceil, cos, exp, floor, log, mp, mpf, pi, sin, sqrt

import relbias as rb
from relbias.relations import Grid, Sequence, Volume

TOKENS, SIZE, PAIRS = 65_536, 64, 32
SAMPLE = [0, 1, 4097, 32_768, 65_535]
SHORT, LONG = [1 + p / 64 for p in range(PAIRS)], [1.5 + p * p / 8 for p in range(PAIRS)]


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def plain(p, base=10000, size=SIZE):
    return exp(-log(mpf(base)) * 2 * p / size)


def yarn(p):
    def pair(turns):
        return SIZE * log(4096 / (turns * 2 * pi)) / (2 * log(mpf(10000)))

    low, high = floor(pair(32)), ceil(pair(1))
    slowed = min(max((p - low) / (high - low), mpf(0)), mpf(1))
    return plain(p) * (1 - slowed) + plain(p) * slowed / 16


def llama3(p):
    frequency = plain(p, 500_000)
    kept = min(max((8192 * frequency / (2 * pi) - 1) / 3, mpf(0)), mpf(1))
    return frequency * kept + frequency * (1 - kept) / 8


def along(axes, base):
    """The angle of pair p at given places, from the fastest axis on, each with as many pairs."""
    size = SIZE // (2 * axes)
    return lambda p, places: places[axes - 1 - p // size] * exp(-log(mpf(base)) * (p % size) / size)


# The relation, the options, and the angle of pair p at a position or at places by 50-digit arithmetic.
CASES = {
    "rope": (Sequence(), {}, lambda p, i: i * plain(p)),
    "rope_linear": (Sequence(), {"factor": 3.0}, lambda p, i: i * plain(p) / 3),
    "rope_ntk": (Sequence(), {"factor": 3.0}, lambda p, i: i * plain(p, 10000 * mpf(3) ** (mpf(64) / 62))),
    "rope_dynamic": (
        Sequence(),
        {"factor": 3.0},
        lambda p, i: i * plain(p, 10000 * (3 * mpf(TOKENS) / 4096 - 2) ** (mpf(64) / 62)),
    ),
    "rope_yarn": (Sequence(), {"factor": 16.0}, lambda p, i: i * yarn(p)),
    "rope_llama3": (Sequence(), {}, lambda p, i: i * llama3(p)),
    "rope_longrope": (
        Sequence(),
        {"short_factor": SHORT, "long_factor": LONG},
        lambda p, i: i * plain(p) / mpf(LONG[p]),
    ),
    "rope_axial": (Grid(256, 256), {}, along(2, 100)),
    "rope_axial of a volume": (Volume(64, 32, 32), {}, along(3, 100)),
    "rope_axial of a spectrogram": (Grid(2, 32_768), {"base": (10.0, 10000.0)}, None),
    "rope_mixed": (Grid(256, 256), {}, None),
}
AMPLITUDES = {
    "rope_yarn": lambda: log(mpf(16)) / 10 + 1,
    "rope_longrope": lambda: sqrt(1 + log(mpf(32)) / log(mpf(4096))),
}


def places_of(relation, token):
    """The position, or the coordinates."""
    if isinstance(relation, Sequence):
        return token
    places = []
    for size in reversed(relation.sizes):
        token, place = divmod(token, size)
        places.append(place)
    return places[::-1]


def make(case, dtype=torch.float32):
    relation, options, _ = CASES[case]
    encoding = rb.create_encoding(case.split()[0], 2, SIZE, relation, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(0)
    for parameter in encoding.parameters():
        numbers = torch.randint(-127, 128, parameter.shape, generator=generator) / 64  # that every dtype holds
        with torch.no_grad():
            parameter.copy_(numbers)
    return encoding


def rotation_of(encoding):
    relation = encoding.relation
    return encoding(relation(TOKENS) if isinstance(relation, Sequence) else relation()).rotation


def exact_angle(case, encoding, p, token, head):
    relation, _, formula = CASES[case]
    places = places_of(relation, token)
    if case == "rope_mixed":
        along_x, along_y = (mpf(float(encoding.frequencies.detach()[axis, head, p])) for axis in (0, 1))
        return places[1] * along_x + places[0] * along_y
    if case == "rope_axial of a spectrogram":
        place, base = (places[1], 10000) if p < PAIRS // 2 else (places[0], 10)
        return place * exp(-log(mpf(base)) * (p % 16) / 16)
    return formula(p, places)


@pytest.mark.parametrize("case", CASES)
def test_half_precision_has_bit_for_bit_the_angles_of_float32(case):
    expected = rotation_of(make(case))
    assert expected.q_angles.shape[2] == TOKENS
    assert expected.q_angles.dtype == torch.float64
    for dtype in (torch.bfloat16, torch.float16):
        for encoding in (make(case).to(dtype), make(case, dtype)):
            rotation = rotation_of(encoding)
            assert torch.equal(rotation.q_angles, expected.q_angles)
            assert torch.equal(rotation.k_angles, expected.k_angles)
            assert rotation.factor == expected.factor


@pytest.mark.parametrize("case", CASES)
def test_angles_are_exact(case):
    encoding = make(case)
    rotation = rotation_of(encoding)
    heads, pairs = rotation.q_angles.shape[1], rotation.q_angles.shape[3]
    amplitude = AMPLITUDES.get(case, lambda: mpf(1))()
    x = torch.zeros(1, heads, len(SAMPLE), SIZE)
    first = torch.arange(pairs) * 2 if rotation.interleaved else torch.arange(pairs)
    second = first + 1 if rotation.interleaved else first + pairs
    x[..., first] = 1.0  # so that a pair becomes (cos, sin) of its angle
    turned = rotation.rotate(x, rotation.q_angles[:, :, SAMPLE])
    largest = mpf(0)
    for head in range(heads):
        for row, token in enumerate(SAMPLE):
            for p in range(pairs):
                exact = exact_angle(case, encoding, p, token, head)
                largest = max(largest, abs(exact))
                assert abs(mpf(float(rotation.q_angles[0, head, token, p])) - exact) < 1e-9
                assert abs(mpf(float(turned[0, head, row, first[p]])) - amplitude * cos(exact)) < 2e-7
                assert abs(mpf(float(turned[0, head, row, second[p]])) - amplitude * sin(exact)) < 2e-7
    if case in ("rope", "rope_yarn", "rope_llama3", "rope_ntk", "rope_dynamic"):
        assert largest == 65_535  # where float32 holds angles to 4e-3 only
