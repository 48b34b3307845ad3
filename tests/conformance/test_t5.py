"""T5's bias and whole attention layer, against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, T5Config
from transformers.models.t5.modeling_t5 import T5Attention

import relbias as rb
from relbias.encodings.t5 import t5_buckets

DIM, HEADS = 32, 4


@pytest.fixture
def pair(dtype, implementation, copy_linear):
    """Makes T5's layer and ours with the same weights."""

    def make(causal: bool):
        torch.manual_seed(0)
        config = T5Config(d_model=DIM, d_kv=DIM // HEADS, num_heads=HEADS, is_decoder=causal, dropout_rate=0.0)
        config._attn_implementation = "eager"
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0, is_causal=causal).to(dtype)
        torch.nn.init.normal_(theirs.relative_attention_bias.weight)
        ours = rb.RelativeAttention(
            DIM,
            HEADS,
            lambda heads, size, relation: rb.encodings.T5(heads, size, relation, bidirectional=not causal),
            scale="paper",
            qkv_bias=False,
            implementation=implementation,
            dtype=dtype,
        )
        layers = (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)
        for layer, their_layer in zip(layers, (theirs.q, theirs.k, theirs.v, theirs.o), strict=True):
            copy_linear(layer, their_layer.weight)
        with torch.no_grad():
            ours.encoding.table.copy_(theirs.relative_attention_bias.weight.T)
        return ours, theirs

    return make


def _causal_mask(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((n, n), torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("length", [11, 150])  # 150 keys: beyond max_distance = 128
def test_layer(pair, dtype, assert_same, causal, length):
    ours, theirs = pair(causal)
    x = torch.randn(2, length, DIM, dtype=dtype, requires_grad=True)
    mask = _causal_mask(length, dtype) if causal else None
    assert_same(
        (ours(x, is_causal=causal), [x, ours.encoding.table, ours.q_proj.weight, ours.out_proj.weight]),
        (theirs(x, mask=mask)[0], [x, theirs.relative_attention_bias.weight, theirs.q.weight, theirs.o.weight]),
        [lambda g: g, lambda g: g.T, lambda g: g, lambda g: g],
    )


def test_cached_step(pair, dtype, assert_same):
    ours, theirs = pair(causal=True)
    x, last = torch.randn(2, 139, DIM, dtype=dtype), torch.randn(2, 1, DIM, dtype=dtype, requires_grad=True)
    cache, their_cache = rb.KVCache(), DynamicCache()
    with torch.no_grad():
        ours(x, cache=cache, is_causal=True)
        theirs(x, mask=_causal_mask(139, dtype), cache=their_cache)
    assert_same(
        (ours(last, cache=cache, is_causal=True), [last, ours.encoding.table]),
        (theirs(last, cache=their_cache)[0], [last, theirs.relative_attention_bias.weight]),
        [lambda g: g, lambda g: g.T],
    )


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_bias_matrix(pair, dtype, causal):
    ours, theirs = pair(causal)
    for n, m in ((9, 9), (1, 140), (3, 7)):
        (entry,) = ours.encoding(rb.relations.Sequence()(n, m)).entries
        bias = entry.b[:, entry.index.codes()[0, 0]]
        assert torch.equal(bias, theirs.compute_bias(n, m, past_seen_tokens=m - n)[0])


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (32, 256), (64, 512), (128, 1024), (320, 800), (96, 81)]
)
def test_buckets_of_every_offset(bidirectional, num_buckets, max_distance):
    offsets = torch.arange(-4096, 4097)
    expected = T5Attention._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance)
    assert torch.equal(t5_buckets(offsets, num_buckets, max_distance, bidirectional), expected)
