import math

import pytest
import torch

import relbias as rb
from relbias.encodings import Kerple
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


def within(parameter, low, high):
    """The value within its limits, with the gradient of the value without limits."""
    return parameter + (parameter.clamp(low, high) - parameter).detach()


class TestKerpleLog(EncodingTestCase):
    encoding = Kerple

    def bias(self, encoding, head, distance):
        p, a = within(encoding.p[head], 0.01, None), within(encoding.a[head], 0.01, None)
        return -p * torch.log(1 + a * distance)

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        rows = [
            [[self.bias(encoding, h, abs(self.loop_offset(index, i, j))) for j in range(m)] for i in range(n)]
            for h in range(encoding.num_heads)
        ]
        bias = torch.stack([torch.stack([torch.stack(row) for row in head]) for head in rows])
        return scale * q @ k.mT + bias


class TestKerplePower(TestKerpleLog):
    encoding = Kerple
    options = {"variant": "power"}

    def bias(self, encoding, head, distance):
        p, a = within(encoding.p[head], 0.01, 2.0), within(encoding.a[head], 0.01, None)
        return -a * distance**p if distance else 0.0 * a


def test_refuses_an_unknown_variant():
    with pytest.raises(ValueError, match="log, power; got 'exp'"):
        Kerple(4, 16, variant="exp")


def test_refuses_a_clipped_relation():
    with pytest.raises(ValueError, match="'kerple' is a function of the distance and takes relations without"):
        Kerple(4, 16, Sequence(max_distance=8))


def test_starts_in_the_papers_ranges():
    encoding = Kerple(2000, 1)
    for parameter, largest in ((encoding.p, 2.0), (encoding.a, 1.0)):
        assert 0.0 <= float(parameter.detach().min()) < 0.05 * largest
        assert 0.95 * largest < float(parameter.detach().max()) <= largest


@pytest.mark.parametrize("variant", ["log", "power"])
def test_a_parameter_beyond_its_limit_is_left_alone_and_comes_back(variant):
    encoding = Kerple(1, 4, variant=variant)
    with torch.no_grad():
        encoding.p.fill_(0.5)
        encoding.a.fill_(-0.2)
    before = encoding.a.clone()
    index = Sequence()(5)
    (entry,) = encoding(index).entries
    assert torch.equal(encoding.a, before)
    target = entry.b.detach() - 1.0  # a stronger penalty than the limit gives
    optimizer = torch.optim.SGD([encoding.a], lr=0.1)
    for _ in range(20):
        loss = (encoding(index).entries[0].b - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(encoding.a.detach()) > 0.01


@pytest.mark.parametrize("name", ["kerple", "sandwich", "alibi"])
@pytest.mark.parametrize("batch", [1, 2])
def test_given_positions(name, batch):
    torch.manual_seed(0)
    options = {"learned": True} if name == "alibi" else {}
    encoding = rb.create_encoding(name, 4, 8, **options).double()
    queries, keys = torch.randint(-20, 40, (batch, 3)), torch.randint(-20, 40, (batch, 5))
    (entry,) = encoding(Sequence()(3, 5, queries, keys)).entries
    got = entry.b(slice(1, 3))
    assert got.shape == (batch, 4, 2, 5)
    for b in range(batch):
        for i in (1, 2):
            for j in range(5):
                distance = abs(int(keys[b, j] - queries[b, i]))
                (single,) = encoding(Sequence()(1, distance + 1)).entries  # the last query and the first key
                expected = single.b[:, single.index.codes()[0, 0, 0, 0]]
                torch.testing.assert_close(got[b, :, i - 1, j], expected, rtol=1e-12, atol=0)
    q, k = torch.randn(2, 4, 3, 8, dtype=torch.float64), torch.randn(2, 4, 5, 8, dtype=torch.float64)
    outs = [
        rb.relative_attention(q, k, k, rb.Terms.of(entry), implementation=implementation)
        for implementation in rb.list_implementations()
        if implementation != "flex"  # which takes no float64
    ]
    for out in outs:
        assert math.isfinite(float(out.detach().sum()))
        torch.testing.assert_close(out, outs[0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kerple", {"variant": "log"}),
        ("kerple", {"variant": "power"}),
        ("sandwich", {}),
        ("alibi", {"variant": "nonsymmetric", "learned": True}),
        ("fire", {"threshold": 3.0}),
    ],
)
def test_cached_steps_equal_the_whole(name, options):
    torch.manual_seed(0)
    attention = rb.RelativeAttention(
        32, 4, lambda heads, size, relation: rb.create_encoding(name, heads, size, relation, **options)
    ).double()
    x, cache = torch.randn(2, 7, 32, dtype=torch.float64), rb.KVCache()
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 4, 9]])
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, :2] = True
    whole = attention(x, positions=positions, key_padding_mask=padding, is_causal=True)
    steps = []
    for part in (slice(0, 3), slice(3, 4), slice(4, 7)):
        arguments = {"positions": positions[:, part], "key_padding_mask": padding[:, part]}
        steps.append(attention(x[:, part], cache=cache, is_causal=True, **arguments))
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=0, atol=1e-12)
    plain = attention(x, is_causal=True)
    torch.testing.assert_close(plain[0], whole[0], rtol=0, atol=1e-12)
    assert not torch.allclose(plain[1, 4:], whole[1, 4:], atol=1e-6)
