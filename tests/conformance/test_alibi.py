"""ALiBi's slopes and biases against transformers' Bloom (a whole layer) and MPT, and the paper's own slopes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from transformers import BloomConfig
from transformers.models.bloom import modeling_bloom
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

import relbias as rb
from relbias.encodings.alibi import alibi_slopes

SIZE = 8


def paper_slopes(n: int) -> list[float]:
    """As in the repository of the paper's authors, fairseq/models/transformer.py."""

    def power_of_2(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power_of_2(n)
    closest = 2 ** math.floor(math.log2(n))
    return power_of_2(closest) + paper_slopes(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 12, 16, 20, 25, 32])
def test_slopes(heads):
    assert alibi_slopes(heads) == pytest.approx(paper_slopes(heads), rel=1e-12)
    assert modeling_bloom._get_alibi_slopes(heads, "cpu").tolist() == pytest.approx(alibi_slopes(heads), rel=1e-6)


@pytest.fixture
def bloom(dtype, implementation, monkeypatch, copy_linear):
    """Makes Bloom's attention and ours with the same weights."""

    def make(heads: int, variant: str):
        torch.manual_seed(0)
        if dtype == torch.float64:
            # Bloom's constants in float32, the slopes and the softmax, are substituted by the same in float64.
            slopes = torch.tensor(paper_slopes(heads), dtype=dtype)
            monkeypatch.setattr(modeling_bloom, "_get_alibi_slopes", lambda num_heads, device: slopes)
            double_softmax = SimpleNamespace(softmax=lambda x, dim, dtype: x.softmax(dim), dropout=None)
            monkeypatch.setattr(modeling_bloom, "F", double_softmax)
            monkeypatch.setattr(modeling_bloom, "dropout_add", lambda x, residual, p, training: x + residual)
        config = BloomConfig(hidden_size=heads * SIZE, n_head=heads, attention_dropout=0.0, hidden_dropout=0.0)
        theirs = modeling_bloom.BloomAttention(config, layer_idx=0).to(dtype)
        ours = rb.RelativeAttention(
            heads * SIZE,
            heads,
            lambda heads, size, relation: rb.encodings.ALiBi(heads, size, relation, variant=variant),
            implementation=implementation,
            dtype=dtype,
        )
        # Bloom holds the rows of each head's q, k and v together.
        weights = theirs.query_key_value.weight.view(heads, 3, SIZE, -1).unbind(1)
        biases = theirs.query_key_value.bias.view(heads, 3, SIZE).unbind(1)
        for layer, weight, bias in zip((ours.q_proj, ours.k_proj, ours.v_proj), weights, biases, strict=True):
            copy_linear(layer, weight.flatten(0, 1), bias.flatten())
        copy_linear(ours.out_proj, theirs.dense.weight, theirs.dense.bias)
        return ours, theirs

    return make


@pytest.mark.parametrize("heads", [8, 12])
@pytest.mark.parametrize(("variant", "is_causal"), [("symmetric", True), ("causal", False)])
def test_bloom_layer(bloom, dtype, assert_same, heads, variant, is_causal):
    ours, theirs = bloom(heads, variant)
    x = torch.randn(2, 17, heads * SIZE, dtype=dtype, requires_grad=True)
    alibi = modeling_bloom.build_alibi_tensor(torch.ones(2, 17, dtype=torch.long), heads, dtype)
    mask = torch.full((17, 17), torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]
    assert_same(
        (ours(x, is_causal=is_causal), [x, ours.q_proj.weight]),
        (theirs(x, torch.zeros_like(x), alibi, mask)[0], [x, theirs.query_key_value.weight]),
        [lambda g: g, lambda g: g.view(heads, 3, SIZE, -1)[:, 0].flatten(0, 1)],
    )


def test_bloom_layer_with_left_padding(bloom, dtype, assert_same):
    ours, theirs = bloom(8, "symmetric")
    x = torch.randn(2, 9, 8 * SIZE, dtype=dtype, requires_grad=True)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, :4] = True
    alibi = modeling_bloom.build_alibi_tensor((~padding).long(), 8, dtype)
    hidden = padding[:, None, None, :] | torch.ones(9, 9, dtype=torch.bool).triu(1)
    mask = torch.zeros(2, 1, 9, 9, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
    keep = (~padding)[..., None]  # what Bloom makes of padding queries means nothing
    assert_same(
        (ours(x, is_causal=True, key_padding_mask=padding) * keep, [x]),
        (theirs(x, torch.zeros_like(x), alibi, mask)[0] * keep, [x]),
    )


@pytest.mark.parametrize("heads", [8, 12])
def test_mpt_bias_of_the_last_query(heads):
    encoding = rb.encodings.ALiBi(heads, SIZE)
    (entry,) = encoding(rb.relations.Sequence()(1, 30)).entries
    bias = entry.b[:, entry.index.codes()[0, 0]]
    torch.testing.assert_close(bias.float(), build_mpt_alibi_tensor(heads, 30), rtol=1e-6, atol=0)


def test_asymmetric_heads_look_to_one_side_each():
    heads, n = 5, 6  # three heads look back, two look ahead, each group with slopes of its own
    (entry,) = rb.encodings.ALiBi(heads, SIZE, variant="asymmetric")(rb.relations.Sequence()(n)).entries
    bias = entry.b[:, entry.index.codes()[0, 0]]
    slopes = paper_slopes(3) + paper_slopes(2)
    for h in range(heads):
        for i in range(n):
            for j in range(n):
                hidden = j > i if h < 3 else j < i
                expected = -math.inf if hidden else -slopes[h] * abs(i - j)
                assert float(bias[h, i, j]) == pytest.approx(expected, rel=1e-12)
