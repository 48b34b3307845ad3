"""WavLM's whole attention layer, against torchaudio and transformers."""

from __future__ import annotations

import pytest
import torch
from torchaudio.models.wav2vec2.wavlm_attention import WavLMSelfAttention
from transformers.models.wavlm.modeling_wavlm import WavLMAttention

import relbias as rb

DIM, HEADS = 24, 3
NAMES = ("q", "k", "v", "out")


@pytest.fixture(params=["reference", "folded"])
def implementation(request):
    return request.param


@pytest.fixture
def ours(dtype, implementation):
    torch.manual_seed(0)
    attention = rb.RelativeAttention(DIM, HEADS, "wavlm", implementation=implementation, dtype=dtype)
    for parameter in attention.encoding.parameters():
        torch.nn.init.normal_(parameter)
    return attention


def copy_encoding(theirs, embedding, encoding):
    with torch.no_grad():
        embedding.weight.copy_(encoding.table.T)
        theirs.gru_rel_pos_linear.weight.copy_(encoding.gate.weight)
        theirs.gru_rel_pos_linear.bias.copy_(encoding.gate.bias)
        theirs.gru_rel_pos_const.copy_(encoding.constant.view(1, HEADS, 1, 1))


def encoding_parameters(encoding):
    return [encoding.table, encoding.gate.weight, encoding.gate.bias, encoding.constant]


def their_parameters(theirs, embedding):
    linear = theirs.gru_rel_pos_linear
    return [embedding.weight, linear.weight, linear.bias, theirs.gru_rel_pos_const]


MAPS = [lambda g: g.T, lambda g: g, lambda g: g, lambda g: g.flatten()]


@pytest.mark.parametrize("length", [9, 130])  # 130: beyond the 80 buckets of one distance each
def test_torchaudio_layer(ours, dtype, assert_same, copy_linear, length):
    theirs = WavLMSelfAttention(DIM, HEADS, has_relative_attention_bias=True, num_buckets=320, max_distance=800)
    theirs = theirs.to(dtype)
    copy_encoding(theirs, theirs.rel_attn_embed, ours.encoding)
    with torch.no_grad():
        theirs.attention.in_proj_weight.copy_(torch.cat([getattr(ours, f"{n}_proj").weight for n in NAMES[:3]]))
        theirs.attention.in_proj_bias.normal_()
        for name, bias in zip(NAMES[:3], theirs.attention.in_proj_bias.chunk(3), strict=True):
            getattr(ours, f"{name}_proj").bias.copy_(bias)
    copy_linear(theirs.attention.out_proj, ours.out_proj.weight, ours.out_proj.bias)
    x = torch.randn(2, length, DIM, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x), [x, *encoding_parameters(ours.encoding), ours.v_proj.weight]),
        (
            theirs(x)[0],
            [x, *their_parameters(theirs, theirs.rel_attn_embed), theirs.attention.in_proj_weight],
        ),
        [lambda g: g, *MAPS, lambda g: g.chunk(3)[2]],
    )


@pytest.mark.parametrize("padded", [False, True])
def test_transformers_layer(ours, dtype, assert_same, copy_linear, padded):
    theirs = WavLMAttention(DIM, HEADS, num_buckets=320, max_distance=800).to(dtype)
    copy_encoding(theirs, theirs.rel_attn_embed, ours.encoding)
    for name in NAMES:
        layer = getattr(ours, f"{name}_proj")
        copy_linear(getattr(theirs, f"{name}_proj"), layer.weight, layer.bias)
    x = torch.randn(2, 9, DIM, dtype=dtype, requires_grad=True)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 6:] = padded
    assert_same(
        (ours(x, key_padding_mask=padding), [x, *encoding_parameters(ours.encoding), ours.q_proj.weight]),
        (
            theirs(x, attention_mask=(~padding).long())[0],
            [x, *their_parameters(theirs, theirs.rel_attn_embed), theirs.q_proj.weight],
        ),
        [lambda g: g, *MAPS, lambda g: g],
    )
