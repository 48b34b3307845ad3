"""Tables over a grid against Swin v1, BEiT and the relative vision transformers of timm, and BEiT of transformers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from timm.layers.pos_embed_rel import RelPosBias, RelPosBiasTf
from timm.models.beit import Attention as BeitAttention
from timm.models.beit import gen_relative_position_index
from timm.models.swin_transformer import WindowAttention, get_relative_position_index
from timm.models.vision_transformer_relpos import RelPosAttention
from transformers import BeitConfig
from transformers.models.beit.modeling_beit import BeitRelativePositionBias

import relbias as rb

DIM, HEADS = 24, 3


@pytest.fixture
def ours_like(dtype, implementation, copy_linear):
    """Makes our layer with the weights of one of timm's, whose q, k and v lie one after another."""

    def make(theirs, relation, qkv_bias):
        ours = rb.RelativeAttention(DIM, HEADS, "table", relation, implementation=implementation, dtype=dtype)
        layers = (ours.q_proj, ours.k_proj, ours.v_proj)
        for layer, weight, bias in zip(layers, theirs.qkv.weight.chunk(3), qkv_bias, strict=True):
            copy_linear(layer, weight, bias)
        copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
        torch.nn.init.normal_(theirs.relative_position_bias_table)
        with torch.no_grad():
            ours.encoding.table.copy_(theirs.relative_position_bias_table.T)
        return ours

    return make


@pytest.mark.parametrize("window", [(3, 5), (4, 2), (1, 6)])
@pytest.mark.parametrize("shifted", [False, True])
def test_swin_window_attention(ours_like, dtype, assert_same, window, shifted):
    torch.manual_seed(0)
    n = window[0] * window[1]
    theirs = WindowAttention(DIM, HEADS, window_size=window, dtype=dtype)
    torch.nn.init.normal_(theirs.qkv.bias)
    ours = ours_like(theirs, rb.relations.Grid(*window), theirs.qkv.bias.chunk(3))
    x = torch.randn(4, n, DIM, dtype=dtype, requires_grad=True)
    # A shifted window forbids pairs across the seam with -100: two windows, twice.
    mask = torch.where(torch.rand(2, n, n) < 0.3, -100.0, 0.0).to(dtype) if shifted else None
    our_mask = mask.repeat(2, 1, 1)[:, None] if shifted else None
    assert_same(
        (ours(x, attn_mask=our_mask), [x, ours.encoding.table, ours.q_proj.weight]),
        (theirs(x, mask), [x, theirs.relative_position_bias_table, theirs.qkv.weight]),
        [lambda g: g, lambda g: g.T, lambda g: g.chunk(3)[0]],
    )


@pytest.mark.parametrize("window", [(3, 5), (4, 2)])
def test_beit_attention_with_class_token(ours_like, dtype, assert_same, window):
    torch.manual_seed(0)
    theirs = BeitAttention(DIM, HEADS, qkv_bias=True, window_size=window, dtype=dtype)
    torch.nn.init.normal_(theirs.q_bias)
    torch.nn.init.normal_(theirs.v_bias)
    relation = rb.relations.Grid(*window, prefix_tokens=1)
    ours = ours_like(theirs, relation, (theirs.q_bias, None, theirs.v_bias))
    x = torch.randn(2, 1 + window[0] * window[1], DIM, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x), [x, ours.encoding.table, ours.v_proj.weight]),
        (theirs(x), [x, theirs.relative_position_bias_table, theirs.qkv.weight]),
        [lambda g: g, lambda g: g.T, lambda g: g.chunk(3)[2]],
    )


@pytest.mark.parametrize("window", [(3, 5), (4, 2)])
@pytest.mark.parametrize("prefix_tokens", [0, 1])
def test_attention_of_timms_relative_vision_transformer(
    dtype, implementation, assert_same, copy_linear, window, prefix_tokens
):
    torch.manual_seed(0)
    bias = partial(RelPosBias, window_size=window, prefix_tokens=prefix_tokens)
    theirs = RelPosAttention(DIM, HEADS, qkv_bias=True, rel_pos_cls=bias, dtype=dtype)
    table = torch.nn.init.normal_(theirs.rel_pos.relative_position_bias_table)
    relation = rb.relations.Grid(*window, prefix_tokens)
    ours = rb.RelativeAttention(DIM, HEADS, "table", relation, implementation=implementation, dtype=dtype)
    layers = (ours.q_proj, ours.k_proj, ours.v_proj)
    for layer, weight, bias in zip(layers, theirs.qkv.weight.chunk(3), theirs.qkv.bias.chunk(3), strict=True):
        copy_linear(layer, weight, bias)
    copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
    with torch.no_grad():
        ours.encoding.table.copy_(table.T)
    x = torch.randn(2, relation().shape[0], DIM, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x), [x, ours.encoding.table, ours.q_proj.weight, ours.v_proj.weight]),
        (theirs(x), [x, table, theirs.qkv.weight, theirs.qkv.weight]),
        [lambda g: g, lambda g: g.T, lambda g: g.chunk(3)[0], lambda g: g.chunk(3)[2]],
    )


@pytest.mark.parametrize("window", [(3, 5), (4, 2)])
def test_bias_of_timms_maxvit(dtype, assert_same, window):
    # Its table holds the offsets of keys from queries, the opposite of ours.
    theirs = RelPosBiasTf(window, HEADS, dtype=dtype)
    table = torch.nn.init.normal_(theirs.relative_position_bias_table)
    relation = rb.relations.Grid(*window)
    ours = rb.create_encoding("table", HEADS, DIM // HEADS, relation).to(dtype)
    with torch.no_grad():
        ours.table.copy_(table.flip(1, 2).flatten(1))
    codes = relation().codes()[0, 0]
    maps = [lambda g: g.flip(1, 2).flatten(1)]
    assert_same((ours.table[:, codes], [ours.table]), (theirs.get_bias(), [table]), maps)


@pytest.mark.parametrize("window", [(1, 1), (3, 5), (7, 7), (14, 14)])
def test_codes_are_those_of_swin_and_beit(window):
    assert torch.equal(rb.relations.Grid(*window)().codes()[0, 0], get_relative_position_index(*window))
    codes = rb.relations.Grid(*window, prefix_tokens=1)().codes()[0, 0]
    assert torch.equal(codes, gen_relative_position_index(window))


def test_bias_of_transformers_beit():
    # A square grid: where height and width differ the peer swaps them when it reshapes its table.
    theirs = BeitRelativePositionBias(BeitConfig(image_size=16, patch_size=4, num_attention_heads=HEADS))
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    relation = rb.relations.Grid(4, 4, prefix_tokens=1)
    bias = theirs.relative_position_bias_table.T[:, relation().codes()[0, 0]]
    torch.testing.assert_close(bias, theirs((4, 4))[0], rtol=0, atol=1e-6)
