import math

import pytest
import torch

from relbias.encodings import TransformerXL
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


class TestTransformerXL(EncodingTestCase):
    encoding = TransformerXL

    def distance(self, index, i, j):
        return -self.loop_offset(index, i, j)

    def relative(self, encoding, index):
        """W_h R[i - j], (H, N, M, D)."""
        n, m = index.shape
        dim = 64

        def sinusoids(x):
            angles = [x / 10000 ** (2 * k / dim) for k in range(dim // 2)]
            numbers = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            return torch.tensor(numbers, dtype=torch.float64)

        rows = [torch.stack([sinusoids(self.distance(index, i, j)) for j in range(m)]) for i in range(n)]
        return torch.einsum("hde,nme->hnmd", encoding.projection, torch.stack(rows))

    def logits(self, encoding, q, k, scale, index):
        content = (q + encoding.u[:, None]) @ k.mT
        position = torch.einsum("bhnd,hnmd->bhnm", q + encoding.w[:, None], self.relative(encoding, index))
        return scale * (content + position)


class TestTransformerXLClamped(TestTransformerXL):
    encoding = TransformerXL
    options = {"clamp_len": 2}

    def distance(self, index, i, j):
        return max(-2, min(2, super().distance(index, i, j)))


def distances_read(encoding, index):
    """The distance that each pair's key tells, (B or 1, N, M), by a projection to one sine and its cosine."""
    m = 20  # the number of the frequency: slow enough to count every distance below
    half = encoding.projection.shape[2] // 2
    with torch.no_grad():
        encoding.projection.zero_()
        encoding.projection[:, 0, m] = 1.0
        encoding.projection[:, 1, half + m] = 1.0
    (entry,) = encoding(index).entries
    keys = entry.K[0, entry.index.codes()[:, 0]]
    return torch.atan2(keys[..., 0], keys[..., 1]) * 10000.0 ** (m / half)


@pytest.mark.parametrize(("n", "m"), [(7, 7), (3, 9), (9, 3), (1, 5)])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_pair_reads_its_own_signed_distance(n, m, transposed):
    index = Sequence()(n, m)
    expected = torch.tensor([[float(i + m - n - j) for j in range(m)] for i in range(n)], dtype=torch.float64)
    read = distances_read(TransformerXL(4, 16).double(), index.T if transposed else index)
    torch.testing.assert_close(read, (-expected if transposed else expected)[None])


@pytest.mark.parametrize("clamp_len", [None, 4])
def test_given_positions(clamp_len):
    queries, keys = torch.tensor([[3, 8, 0], [5, 5, 2]]), torch.tensor([[0, 11], [7, 1]])
    index = Sequence()(3, 2, queries, keys)
    expected = (queries[:, :, None] - keys[:, None]).double()
    if clamp_len is not None:
        expected = expected.clamp(-clamp_len, clamp_len)
    encoding = TransformerXL(4, 16, clamp_len=clamp_len).double()
    torch.testing.assert_close(distances_read(encoding, index), expected)
    torch.testing.assert_close(distances_read(encoding, index.T), -expected)


def test_given_positions_compile_with_a_limit():
    encoding = TransformerXL(2, 4, clamp_len=3)
    positions = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]])

    def keys(positions):
        (entry,) = encoding(Sequence()(5, 5, positions)).entries
        return entry.K[0, entry.index.codes()]

    torch.testing.assert_close(torch.compile(keys, fullgraph=True, backend="eager")(positions), keys(positions))


def test_half_precision_and_autocast_keep_the_sinusoids():
    encoding = TransformerXL(4, 16).bfloat16()
    rounded = TransformerXL(4, 16)
    rounded.load_state_dict(encoding.state_dict())
    distances = torch.arange(-40, 5000)
    assert torch.equal(encoding.keys(distances), rounded.keys(distances))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoding.keys(distances), rounded.keys(distances))


def test_refuses_an_odd_size_and_a_negative_limit():
    with pytest.raises(ValueError, match="even H D, got 15"):
        TransformerXL(3, 5)
    with pytest.raises(ValueError, match="clamp_len"):
        TransformerXL(4, 16, clamp_len=-1)
