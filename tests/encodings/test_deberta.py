import math

import pytest
import torch
from torch import nn

import relbias as rb
from relbias.encodings import DeBERTa
from relbias.relations import Sequence
from relbias.testing import EncodingTestCase
from relbias.testing.cases import HEAD_DIM, HEADS


class TestDeBERTa(EncodingTestCase):
    encoding = DeBERTa
    options = {"position_buckets": 6, "max_relative_positions": 6}

    def bucket(self, distance):
        far = abs(distance)
        if far <= 3:
            return distance
        return (math.ceil(math.log(far / 3) / math.log(5 / 3) * 2) + 3) * (1 if distance > 0 else -1)

    def code(self, index, i, j):
        return max(0, min(11, self.bucket(-self.loop_offset(index, i, j)) + 6))

    def tables(self, encoding):
        """K and Q, each (2 S, H D)."""
        E = encoding.embeddings
        return E @ encoding.key_weight.T, E @ encoding.query_weight.T + encoding.query_bias

    def logits(self, encoding, q, k, scale, index):
        n, m = index.shape
        codes = torch.tensor([[self.code(index, i, j) for j in range(m)] for i in range(n)])
        keys, queries = (table.view(-1, HEADS, HEAD_DIM)[codes] for table in self.tables(encoding))
        c2p, p2c = torch.einsum("bhnd,nmhd->bhnm", q, keys), torch.einsum("bhmd,nmhd->bhnm", k, queries)
        return scale * (q @ k.mT + c2p + p2c)


class TestDeBERTaOfDistances(TestDeBERTa):
    encoding = DeBERTa
    options = {"position_buckets": None, "max_relative_positions": 6}

    def bucket(self, distance):
        return distance


class TestDeBERTaShared(TestDeBERTa):
    encoding = DeBERTa
    options = {**TestDeBERTa.options, "share_att_key": True}

    def context(self, encoding, index):
        generator = torch.Generator().manual_seed(0)
        attention = nn.ModuleDict({name: nn.Linear(64, 64) for name in ("q_proj", "k_proj")}).double()
        for parameter in attention.parameters():
            nn.init.normal_(parameter, std=0.2, generator=generator)
        self.attention = attention.to(encoding.embeddings.dtype)
        return {"attention": _Attributes(self.attention)}

    def tables(self, encoding):
        E = encoding.embeddings
        normed = (E - E.mean(1, keepdim=True)) / (E.var(1, keepdim=True, correction=0) + 1e-7).sqrt()
        normed = normed * encoding.norm_weight + encoding.norm_bias
        return self.attention["k_proj"](normed), self.attention["q_proj"](normed)


class _Attributes:
    def __init__(self, modules):
        self.q_proj, self.k_proj = modules["q_proj"], modules["k_proj"]


@pytest.mark.parametrize(
    ("options", "names", "scale"),
    [
        ({}, ("K", "Q"), 48**-0.5),
        ({"p2c": False}, ("K",), 32**-0.5),
        ({"c2p": False}, ("Q",), 32**-0.5),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_terms_and_the_papers_scale(options, names, scale, shared):
    attention = rb.RelativeAttention(
        64, 4, lambda *args: DeBERTa(*args, share_att_key=shared, **options), scale="paper"
    )
    encoding = attention.encoding
    assert encoding(Sequence()(5), attention=attention).names == names
    assert encoding.paper_scale == pytest.approx(scale)


@pytest.mark.parametrize("position_buckets", [None, 8])
@pytest.mark.parametrize(("n", "m"), [(6, 6), (3, 30), (30, 3), (4, 4)])
def test_every_pair_reads_its_own_code_whatever_the_length(position_buckets, n, m):
    limits = {"position_buckets": position_buckets, "max_relative_positions": 8}
    encoding = DeBERTa(1, 16, **limits)
    with torch.no_grad():
        encoding.embeddings.copy_(torch.eye(16))
        encoding.key_weight.copy_(torch.eye(16))
        encoding.query_weight.copy_(torch.eye(16))
    (entry,) = encoding(Sequence()(n, m)).entries
    positions = torch.arange(m - n, m)
    # Given positions always read the whole table.
    (whole,) = encoding(Sequence()(n, m, positions, torch.arange(m))).entries
    codes = whole.index.codes()[0, 0]
    for table in (entry.K, entry.Q):
        assert torch.equal(table[0, entry.index.codes()[0, 0]].argmax(dim=-1), codes)
    if position_buckets is None:
        expected = [[max(0, min(15, i + m - n - j + 8)) for j in range(m)] for i in range(n)]
        assert codes.tolist() == expected


def test_buckets_that_grow_faster_than_the_distance_are_read_whole():
    # The distance 5 has the bucket 7: a table cut to the distances that occur would lack it.
    encoding = DeBERTa(1, 16, position_buckets=8, max_relative_positions=6)
    (entry,) = encoding(Sequence()(6)).entries
    assert entry.index.codes()[0, 0, 5, 0] == 7 + 8


def test_key_heads_shared_by_groups():
    def make(num_kv_heads):
        return rb.RelativeAttention(
            64, 4, lambda *args: DeBERTa(*args, share_att_key=True), num_kv_heads=num_kv_heads, dtype=torch.float64
        )

    grouped, full = make(2), make(4)
    state = grouped.state_dict()
    for name in ("k_proj.weight", "v_proj.weight", "k_proj.bias", "v_proj.bias"):
        state[name] = state[name].unflatten(0, (2, 16)).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = torch.randn(2, 9, 64, dtype=torch.float64)
    torch.testing.assert_close(grouped(x), full(x))


def test_shared_projections_need_the_layer():
    with pytest.raises(ValueError, match="q_proj and k_proj; pass attention="):
        DeBERTa(4, 16, share_att_key=True)(Sequence()(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"c2p": False, "p2c": False}, "no terms"),
        ({"max_relative_positions": 129}, "above 129, got 129"),
        ({"position_buckets": 1}, "position_buckets"),
        ({"max_relative_positions": 0}, "max_relative_positions"),
    ],
)
def test_refuses_sizes_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        DeBERTa(4, 16, **options)
