import pytest
import torch

from relbias.encodings import MusicTransformer
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


class TestMusicTransformer(EncodingTestCase):
    encoding = MusicTransformer
    options = {"max_distance": 4}  # some keys are farther

    def key(self, encoding, distance):
        return encoding.keys[:, distance] if 0 <= distance <= 4 else torch.zeros(4, 16, dtype=torch.float64)

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        rows = [[self.key(encoding, -self.loop_offset(index, i, j)) for j in range(m)] for i in range(n)]
        keys = torch.stack([torch.stack(row) for row in rows])
        return scale * (q @ k.mT + torch.einsum("bhnd,nmhd->bhnm", q, keys))


class TestMusicTransformerClipped(TestMusicTransformer):
    encoding = MusicTransformer
    options = {}
    relation = Sequence(max_distance=2)

    def key(self, encoding, distance):
        return super().key(encoding, min(distance, 2))


def test_a_short_sequence_takes_the_rows_that_it_needs():
    (entry,) = MusicTransformer(4, 16, max_distance=511)(Sequence()(3, 8)).entries
    assert entry.K.shape == (4, 10, 16)


@pytest.mark.parametrize(("n", "m"), [(6, 6), (3, 8), (8, 3)])
def test_every_pair_reads_its_own_distance(n, m):
    encoding = MusicTransformer(1, 16, max_distance=6)
    with torch.no_grad():
        encoding.keys.copy_(torch.eye(7, 16)[None])
    (entry,) = encoding(Sequence()(n, m)).entries
    rows = entry.K[0, entry.index.codes()[0, 0]]
    for i in range(n):
        for j in range(m):
            distance = i + m - n - j
            expected = [d == distance for d in range(16)] if distance <= 6 else [False] * 16
            assert rows[i, j].bool().tolist() == expected


def test_refuses_a_negative_distance():
    with pytest.raises(ValueError, match="max_distance"):
        MusicTransformer(4, 16, max_distance=-1)
