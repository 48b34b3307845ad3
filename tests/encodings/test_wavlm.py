import math

import pytest
import torch

import relbias as rb
from relbias.encodings import WavLM
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


def bucket(offset, num_buckets, max_distance):
    """WavLM's buckets, one offset at a time."""
    n = num_buckets // 2
    first, distance, exact = n * (offset > 0), abs(offset), n // 2
    if distance < exact:
        return first + distance
    steps = math.log(distance / exact) / math.log(max_distance / exact) * (n - exact)
    return first + min(exact + int(steps + 1e-9), n - 1)


def sigmoid(x):
    return 1 / (1 + (-x).exp())


class TestWavLM(EncodingTestCase):
    encoding = WavLM
    options = {"num_buckets": 8, "max_distance": 9}

    def context(self, encoding, index):
        x = torch.randn(2, index.shape[0], 64, generator=torch.Generator().manual_seed(3))
        return {"x": x.to(encoding.table.dtype)}

    def logits(self, encoding, q, k, scale, index):
        (n, m), x = index.shape, self.context(encoding, index)["x"]
        logits = (scale * q @ k.mT).unbind(0)
        batches = []
        for b in range(2):
            heads = []
            for h in range(4):
                rows = []
                for i in range(n):
                    z = encoding.gate.weight @ x[b, i, 16 * h : 16 * h + 16] + encoding.gate.bias
                    r, s = sigmoid(z[0] + z[1] + z[2] + z[3]), sigmoid(z[4] + z[5] + z[6] + z[7])
                    gate = r * (s * encoding.constant[h] - 1) + 2
                    codes = [bucket(self.loop_offset(index, i, j), 8, 9) for j in range(m)]
                    rows.append(logits[b][h, i] + gate * torch.stack([encoding.table[h, code] for code in codes]))
                heads.append(torch.stack(rows))
            batches.append(torch.stack(heads))
        return torch.stack(batches)


@pytest.mark.parametrize("x", [None, torch.zeros(2, 5, 32), torch.zeros(2, 4, 64), torch.zeros(5, 64)])
def test_refuses_a_call_without_the_layers_input(x):
    with pytest.raises(ValueError, match=r"'wavlm' needs the layer's input, x of shape \(B, 5, 64\), got"):
        WavLM(4, 16)(Sequence()(5), x=x)


def test_refuses_buckets_that_do_not_work():
    with pytest.raises(ValueError, match="'wavlm' needs an even number of buckets"):
        WavLM(4, 16, num_buckets=7)


def test_autocast_does_not_round_the_gates():
    encoding, x = WavLM(4, 16), torch.randn(2, 5, 64)
    with torch.autocast("cpu", torch.bfloat16):
        (low,) = encoding(Sequence()(5), x=x).entries
    (full,) = encoding(Sequence()(5), x=x).entries
    assert torch.equal(low.g, full.g)


def test_cached_steps_equal_the_whole():
    torch.manual_seed(0)
    attention = rb.RelativeAttention(32, 4, "wavlm", dtype=torch.float64)
    torch.nn.init.normal_(attention.encoding.table)
    x, cache = torch.randn(2, 6, 32, dtype=torch.float64), rb.KVCache()
    whole = attention(x, is_causal=True)
    steps = [attention(part, cache=cache, is_causal=True) for part in x.split([3, 1, 2], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-12)
