import math

import pytest
import torch

from relbias.encodings import CodeTransformer
from relbias.relations import Bins
from relbias.testing import EncodingTestCase


class TestCodeTransformer(EncodingTestCase):
    encoding = CodeTransformer
    relation = Bins(num_bins=5)

    def logits(self, encoding, q, k, scale, index):
        (n, m), dim = index.shape, 64
        batches = []
        for b in range(2):
            rows = []
            for i in range(n):
                sinusoids = []
                for j in range(m):
                    x = float(index.bin_values[b, index.bins[b, 0, i, j]])
                    angles = [x / 10000 ** (2 * t / dim) for t in range(dim // 2)]
                    sinusoids.append([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
                keys = torch.einsum("hde,me->hmd", encoding.projection, torch.tensor(sinusoids, dtype=torch.float64))
                rows.append(torch.einsum("hd,hmd->hm", q[b, :, i] + encoding.w, keys))
            batches.append(torch.stack(rows, dim=1))
        return scale * (q @ k.mT + torch.stack(batches))


def test_half_precision_and_autocast_keep_the_sinusoids():
    encoding = CodeTransformer(2, 8, Bins(3)).bfloat16()
    rounded = CodeTransformer(2, 8, Bins(3))
    rounded.load_state_dict(encoding.state_dict())
    values = torch.tensor([[0.0, 10_000.0, -4097.25]])
    assert torch.equal(encoding.keys(values), rounded.keys(values))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoding.keys(values), rounded.keys(values))


def test_refuses_an_odd_size():
    with pytest.raises(ValueError, match="even H D, got 15"):
        CodeTransformer(3, 5, Bins(2))
