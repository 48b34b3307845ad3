import pytest
import torch

from relbias.encodings import Learned
from relbias.relations import Grid, Sequence
from relbias.testing import InputEncodingTestCase


class TestLearned(InputEncodingTestCase):
    encoding = Learned
    options = {"max_length": 20}

    def vectors(self, encoding, index):
        return torch.stack([encoding.table[i] for i in range(index.shape[0])])


class TestLearnedOnGrid(InputEncodingTestCase):
    encoding = Learned
    relation = Grid(3, 4, prefix_tokens=1)

    def vectors(self, encoding, index):
        rows = [encoding.table[0]]
        rows += [encoding.table[1 + y * 4 + x] for y in range(index.height) for x in range(index.width)]
        return torch.stack(rows)


def test_needs_a_length_on_a_sequence_and_only_there():
    with pytest.raises(ValueError, match="max_length"):
        Learned(4, 16)
    with pytest.raises(ValueError, match="max_length"):
        Learned(4, 16, Grid(3, 3), max_length=9)


def test_refuses_what_it_has_no_vector_for():
    encoding = Learned(4, 16, max_length=5)
    with pytest.raises(ValueError, match="5 positions"):
        encoding.embed(torch.zeros(1, 6, 64))
    positions = torch.tensor([[0, 7]])
    with pytest.raises(ValueError, match="positions 0 to 4"):
        encoding.embed(torch.zeros(1, 2, 64), Sequence()(2, 2, positions))
    assert encoding.embed(torch.zeros(1, 2, 64), Sequence()(2, 2, torch.tensor([[3, 4]]))).shape == (1, 2, 64)
