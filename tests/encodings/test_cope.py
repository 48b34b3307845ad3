import pytest
import torch

import relbias as rb
from relbias.encodings import CoPE
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase


def bias(encoding, q, k, scale, i):
    """CoPE's bias of one head and the query at position i, for every key, (M,)."""
    gates = [1 / (1 + (-scale * (q @ key)).exp()) for key in k]
    row = []
    for j in range(len(k)):
        position = sum(gates[j : i + 1], start=torch.zeros_like(gates[0]))
        position = position.clamp(max=encoding.num_positions - 1)
        low = int(position.detach().floor())
        high = min(low + 1, encoding.num_positions - 1)
        part = position - low
        row.append(q @ encoding.table[low] * (1 - part) + q @ encoding.table[high] * part)
    return torch.stack(row)


class Half(torch.nn.Module):
    """A projection to the keys of half as many heads."""

    def forward(self, x):
        return x[..., :32]


class TestCoPE(EncodingTestCase):
    encoding = CoPE
    options = {"num_positions": 4}

    def context(self, encoding, index):
        # Projections that do not round, under autocast neither: how they do is the layer's business.
        layer = torch.nn.Module()
        layer.q_proj, layer.k_proj, layer.scale = torch.nn.Identity(), Half(), 0.4
        x = torch.randn(2, index.shape[1], 64, generator=torch.Generator().manual_seed(3))
        return {"x": x.to(encoding.table.dtype), "attention": layer}

    def logits(self, encoding, q, k, scale, index):
        (n, m), x = index.shape, self.context(encoding, index)["x"]
        queries, keys = x[:, m - n :].view(2, n, 4, 16), x[..., :32].view(2, m, 2, 16)
        rows = [
            [
                torch.stack([bias(encoding, queries[b, i, h], keys[b, :, h // 2], 0.4, i + m - n) for i in range(n)])
                for h in range(4)
            ]
            for b in range(2)
        ]
        return scale * q @ k.mT + torch.stack([torch.stack(heads) for heads in rows])


@pytest.fixture
def attention():
    torch.manual_seed(0)
    layer = rb.RelativeAttention(32, 4, "cope", dtype=torch.float64)
    torch.nn.init.normal_(layer.encoding.table)
    return layer


def test_a_key_after_the_query_is_at_position_zero(attention):
    x = torch.randn(1, 5, 32, dtype=torch.float64)
    (entry,) = attention.encoding(Sequence()(5), x=x, attention=attention).entries
    q = attention.q_proj(x).view(5, 4, 8)
    torch.testing.assert_close(entry.b(slice(None))[0, :, 1, 3], q[1] @ attention.encoding.table[0])


def test_padding_at_either_end_does_not_count(attention):
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    alone = attention(x[:, 2:7], is_causal=True)
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[:, 2:7] = False
    torch.testing.assert_close(attention(x, is_causal=True, key_padding_mask=padding)[:, 2:7], alone)


def test_documents_are_as_alone(attention):
    x = torch.randn(1, 9, 32, dtype=torch.float64)
    ids = torch.tensor([[0] * 4 + [1] * 5])
    alone = torch.cat([attention(part, is_causal=True) for part in x.split([4, 5], dim=1)], dim=1)
    torch.testing.assert_close(attention(x, is_causal=True, document_ids=ids), alone)


def test_given_positions_do_not_matter(attention):
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    positions = torch.tensor([[0, 7, 9, 30, 31], [4, 3, 2, 1, 0]])
    assert torch.equal(attention(x, positions=positions, is_causal=True), attention(x, is_causal=True))


def test_refuses_a_cache_with_tokens(attention):
    x, cache = torch.randn(2, 5, 32, dtype=torch.float64), rb.KVCache()
    whole = attention(x, is_causal=True)
    torch.testing.assert_close(attention(x, cache=cache, is_causal=True), whole)
    with pytest.raises(ValueError, match=r"x with all 7 tokens .* does not work with a cache of tokens"):
        attention(x[:, :2], cache=cache, is_causal=True)
    assert cache.length == 5


@pytest.mark.parametrize("length", [3, 5])
@pytest.mark.parametrize("encoding", ["cope", {"a": "cope", "b": "t5"}])
def test_refuses_a_context(encoding, length):
    attention = rb.RelativeAttention(32, 4, encoding)
    x, index = torch.randn(2, 5, 32), Sequence()(5, length)
    index = index if encoding == "cope" else {"a": index, "b": index}
    with pytest.raises(ValueError, match="makes the keys from x itself and takes no context"):
        attention(x, x[:, :length], index=index)


@pytest.mark.parametrize("given", [{}, {"x": torch.zeros(1, 5, 64)}, {"attention": torch.nn.Identity()}])
def test_refuses_a_call_without_x_and_the_layer(given):
    with pytest.raises(ValueError, match="'cope' makes q and k again: it needs the layer's input x and as attention"):
        CoPE(4, 16)(Sequence()(5), **given)


def test_refuses_a_transposed_index(attention):
    with pytest.raises(ValueError, match="no transposed index"):
        attention(torch.randn(2, 5, 32, dtype=torch.float64), index=Sequence()(5).T)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_positions": 0}, "'cope' num_positions must be an integer of at least 1"),
        ({"relation": Sequence(max_distance=4)}, r"takes Sequence\(\) unclipped"),
    ],
)
def test_refuses_what_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        CoPE(4, 16, **options)
