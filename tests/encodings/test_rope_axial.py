import math

import pytest
import torch

from relbias.encodings import AxialRoPE
from relbias.relations import Grid, Volume
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


class TestAxialRoPEOfAVolume(EncodingTestCase):
    """Two pairs for each of x, y and z; of the 16 dimensions four stay. Every axis has a base of its own."""

    encoding = AxialRoPE
    relation = Volume(2, 3, 2, prefix_tokens=1)
    options = {"base": (30.0, 50.0, 70.0)}

    def turn(self, x, index):
        x = x.clone()
        depth, height, width = index.sizes
        places = [(z, y, x_place) for z in range(depth) for y in range(height) for x_place in range(width)]
        for token, (z, y, x_place) in enumerate(places, start=index.prefix_tokens):
            for axis, (place, base) in enumerate(((x_place, 70.0), (y, 50.0), (z, 30.0))):
                for p in range(2):
                    angle, first = place * base ** (-p / 2), 4 * axis + 2 * p
                    a, b = x[..., token, first].clone(), x[..., token, first + 1].clone()
                    x[..., token, first] = a * math.cos(angle) - b * math.sin(angle)
                    x[..., token, first + 1] = a * math.sin(angle) + b * math.cos(angle)
        return x

    def logits(self, encoding, q, k, scale, index):
        return scale * self.turn(q, index) @ self.turn(k, index).mT


def test_time_by_frequency_with_a_base_for_each():
    """A spectrogram is a Grid(frequency, time): the first half turns by time, whose base is the second one."""
    spectrogram = Grid(8, 100)
    angles = AxialRoPE(1, 16, spectrogram, base=(20.0, 1000.0))(spectrogram()).rotation.q_angles[0, 0]
    frequency, time = 5, 70
    expected = [time * 1000.0 ** (-p / 4) for p in range(4)] + [frequency * 20.0 ** (-p / 4) for p in range(4)]
    torch.testing.assert_close(angles[frequency * 100 + time], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("relation", [Grid(3, 4, prefix_tokens=1), Volume(2, 3, 2)])
def test_the_transposed_index_turns_the_other_way(relation):
    encoding = AxialRoPE(2, 8, relation)
    assert torch.equal(encoding(relation().T).rotation.q_angles, -encoding(relation()).rotation.q_angles)


def test_refuses_a_head_that_does_not_split():
    with pytest.raises(ValueError, match="multiple of 4"):
        AxialRoPE(4, 6, Grid(3, 3))


def test_any_size_of_grid():
    encoding = AxialRoPE(4, 16, Grid(3, 3))
    assert encoding(encoding.grid_index(20, 10)).rotation.q_angles.shape == torch.Size([1, 1, 200, 8])


def test_any_size_of_volume():
    encoding = AxialRoPE(4, 16, Volume(2, 3, 3))
    larger = Volume(4, 5, 6)
    angles = encoding(larger()).rotation.q_angles.unflatten(2, (4, 5, 6))
    assert torch.equal(
        angles[:, :, :2, :3, :3], encoding(encoding.relation()).rotation.q_angles.unflatten(2, (2, 3, 3))
    )


@pytest.mark.parametrize(
    ("head_dim", "relation", "options", "message"),
    [
        (4, Volume(2, 2, 2), {}, "pairs for x, y and z: D must be at least 6, got 4"),
        (8, Volume(2, 2, 2, max_distance=1), {}, "takes a Volume unclipped"),
        (8, Grid(2, 2, max_distance=1), {}, "takes a Grid unclipped"),
        (
            8,
            Grid(2, 2),
            {"base": (10.0, 10.0, 10.0)},
            r"one for each of \('height', 'width'\); got \(10.0, 10.0, 10.0\)",
        ),
        (8, Grid(2, 2), {"base": (10.0, 0.0)}, "'rope_axial' base must be a number above 0, got 0.0"),
        (8, Grid(2, 2), {"base": None}, "base must be a number above 0, got None"),
    ],
)
def test_refusals(head_dim, relation, options, message):
    with pytest.raises(ValueError, match=message):
        AxialRoPE(2, head_dim, relation, **options)


def test_refuses_an_index_of_a_relation_with_other_axes():
    with pytest.raises(ValueError, match=r"takes an index made by Volume.*got a GridIndex"):
        AxialRoPE(2, 8, Volume(2, 2, 2))(Grid(2, 4)())
    with pytest.raises(ValueError, match=r"takes an index made by Grid.*got a VolumeIndex"):
        AxialRoPE(2, 8, Grid(2, 4))(Volume(2, 2, 2)())
