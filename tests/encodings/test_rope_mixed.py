import math

import pytest
import torch

from relbias.encodings import MixedRoPE
from relbias.relations import Grid
from relbias.testing import EncodingTestCase


class TestMixedRoPE(EncodingTestCase):
    encoding = MixedRoPE
    relation = Grid(3, 4, prefix_tokens=1)

    def turn(self, x, index, frequencies):
        x = x.clone()
        for patch in range(index.height * index.width):
            y, x_place = divmod(patch, index.width)
            token = index.prefix_tokens + patch
            for head in range(x.shape[1]):
                for p in range(8):
                    angle = x_place * frequencies[0, head, p] + y * frequencies[1, head, p]
                    a, b = x[:, head, token, 2 * p].clone(), x[:, head, token, 2 * p + 1].clone()
                    x[:, head, token, 2 * p] = a * angle.cos() - b * angle.sin()
                    x[:, head, token, 2 * p + 1] = a * angle.sin() + b * angle.cos()
        return x

    def logits(self, encoding, q, k, scale, index):
        return scale * self.turn(q, index, encoding.frequencies) @ self.turn(k, index, encoding.frequencies).mT


def test_the_start_has_two_directions_at_right_angles_per_head():
    frequencies = MixedRoPE(5, 16, Grid(3, 3), dtype=torch.float64).frequencies.detach()
    first, second = frequencies.chunk(2, dim=-1)
    magnitudes = torch.tensor([10.0 ** (-p / 4) for p in range(4)], dtype=torch.float64)
    for half in (first, second):
        torch.testing.assert_close(half.norm(dim=0), magnitudes.expand(5, -1), rtol=1e-6, atol=0)
    torch.testing.assert_close((first * second).sum(dim=0), torch.zeros(5, 4).double(), rtol=0, atol=1e-6)
    directions = torch.atan2(first[1], first[0])
    torch.testing.assert_close(directions, directions[:, :1].expand(-1, 4), rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.atan2(second[1], second[0]).cos(), (directions + math.pi / 2).cos())
    assert len(set(directions[:, 0].tolist())) == 5


def test_prefix_tokens_do_not_turn():
    relation = Grid(2, 2, prefix_tokens=3)
    angles = MixedRoPE(2, 8, relation)(relation()).rotation.q_angles
    assert not angles[:, :, :3].any()
    assert not angles[:, :, 3].any()  # the patch at (0, 0)
    assert angles[:, :, 4:].abs().min() > 0


def test_any_size_of_grid_has_the_same_angles_at_the_same_place():
    encoding = MixedRoPE(4, 16, Grid(3, 3))
    small = encoding(encoding.relation()).rotation.q_angles.unflatten(2, (3, 3))
    large = encoding(encoding.grid_index(20, 10)).rotation.q_angles.unflatten(2, (20, 10))
    assert torch.equal(large[:, :, :3, :3], small)


def test_the_transposed_grid_turns_the_other_way():
    relation = Grid(3, 4, prefix_tokens=1)
    encoding = MixedRoPE(2, 8, relation)
    assert torch.equal(encoding(relation().T).rotation.q_angles, -encoding(relation()).rotation.q_angles)


@pytest.mark.parametrize(
    ("head_dim", "relation", "options", "message"),
    [
        (6, Grid(3, 3), {}, "'rope_mixed' has pairs in two directions: D must be a multiple of 4, got 6"),
        (8, Grid(3, 3, max_distance=1), {}, "takes a Grid unclipped"),
        (8, Grid(3, 3), {"base": 0.0}, "'rope_mixed' base must be a number above 0, got 0.0"),
        (8, Grid(3, 3), {"base": math.nan}, "above 0, got nan"),
    ],
)
def test_refusals(head_dim, relation, options, message):
    with pytest.raises(ValueError, match=message):
        MixedRoPE(2, head_dim, relation, **options)
