"""Rotary embedding against transformers: Llama (half-split), GPT-J (interleaved, partial), GPT-NeoX (partial)."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, GPTJConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention, GPTNeoXRotaryEmbedding
from transformers.models.gptj.modeling_gptj import GPTJAttention, create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding, apply_rotary_pos_emb

import relbias as rb

DIM, HEADS = 64, 4
SIZE = DIM // HEADS


def half_split_tables(rotary, positions, dtype):
    """The cosines and sines of a transformers model, (B, N, d).

    In float64 the peer's constant, `inv_freq` in float32, is substituted by the same formula in float64.
    """
    if dtype == torch.float32:
        return rotary(torch.zeros((), dtype=dtype), positions)
    size = 2 * len(rotary.inv_freq)
    base = rotary.config.rope_parameters["rope_theta"]
    frequencies = 1.0 / (base ** (torch.arange(0, size, 2, dtype=dtype) / size))
    assert torch.allclose(frequencies.float(), rotary.inv_freq, rtol=1e-6)
    angles = positions[..., None].to(dtype) * frequencies
    return torch.cat((angles, angles), dim=-1).cos(), torch.cat((angles, angles), dim=-1).sin()


def rope(**options):
    return lambda heads, size, relation: rb.encodings.RoPE(heads, size, relation, **options)


@pytest.fixture
def llama(dtype, implementation, copy_linear):
    """Makes Llama's attention, with grouped heads, and ours with the same weights."""

    def make(num_kv_heads: int):
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=DIM,
            num_attention_heads=HEADS,
            num_key_value_heads=num_kv_heads,
            attention_bias=True,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        )
        config._attn_implementation = "sdpa"  # the eager path has its softmax in float32
        theirs = LlamaAttention(config, layer_idx=0).to(dtype)
        ours = rb.RelativeAttention(
            DIM, HEADS, rope(base=500.0), num_kv_heads=num_kv_heads, implementation=implementation, dtype=dtype
        )
        for ours_name, name in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
            layer = getattr(theirs, f"{name}_proj")
            copy_linear(getattr(ours, f"{ours_name}_proj"), layer.weight, layer.bias)
        return ours, theirs, LlamaRotaryEmbedding(config)

    return make


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_llama_layer(llama, dtype, assert_same, num_kv_heads):
    ours, theirs, rotary = llama(num_kv_heads)
    x = torch.randn(2, 13, DIM, dtype=dtype, requires_grad=True)
    tables = half_split_tables(rotary, torch.arange(13)[None], dtype)
    assert_same(
        (ours(x, is_causal=True), [x, ours.q_proj.weight, ours.k_proj.weight]),
        (theirs(x, tables)[0], [x, theirs.q_proj.weight, theirs.k_proj.weight]),
    )


def test_llama_cached_steps_with_positions(llama, dtype, assert_same):
    ours, theirs, rotary = llama(2)
    cache, their_cache = rb.KVCache(), DynamicCache()
    start = torch.tensor([[3], [40]])  # every item at its own position
    tokens = torch.randn(5, 2, 1, DIM, dtype=dtype, requires_grad=True)
    ours_out, theirs_out = [], []
    for step, token in enumerate(tokens):
        ours_out.append(ours(token, cache=cache, positions=start + step, is_causal=True))
        tables = half_split_tables(rotary, start + step, dtype)
        theirs_out.append(theirs(token, tables, cache=their_cache)[0])
    assert_same((torch.cat(ours_out, 1), [tokens]), (torch.cat(theirs_out, 1), [tokens]))


def test_llama_rotation_of_q_and_k(dtype, assert_same):
    q, k = torch.randn(2, 2, HEADS, 9, SIZE, dtype=dtype, requires_grad=True)
    rotary = LlamaRotaryEmbedding(LlamaConfig(hidden_size=DIM, num_attention_heads=HEADS))
    positions = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    rotation = rb.encodings.RoPE(HEADS, SIZE)(rb.relations.Sequence()(9, positions=positions)).rotation
    cos, sin = half_split_tables(rotary, positions, dtype)
    ours = rotation.rotate(q, rotation.q_angles), rotation.rotate(k, rotation.k_angles)
    assert_same((torch.cat(ours, dim=1), [q, k]), (torch.cat(apply_rotary_pos_emb(q, k, cos, sin), dim=1), [q, k]))


def test_gptj_layer_interleaved_and_partial(dtype, implementation, assert_same, copy_linear):
    torch.manual_seed(0)
    config = GPTJConfig(n_embd=DIM, n_head=HEADS, rotary_dim=8, attn_pdrop=0.0, resid_pdrop=0.0)
    config._attn_implementation = "sdpa"  # the eager path has its logits in float32
    theirs = GPTJAttention(config, layer_idx=0).to(dtype)
    ours = rb.RelativeAttention(
        DIM, HEADS, rope(rotary_dim=8, interleaved=True), qkv_bias=False, implementation=implementation, dtype=dtype
    )
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        copy_linear(getattr(ours, name), getattr(theirs, name).weight)
    if dtype == torch.float64:  # the peer's constant, float32 positions and frequencies, is substituted
        angles = torch.arange(13, dtype=dtype)[:, None] / 10000 ** (torch.arange(0, 8, 2, dtype=dtype) / 8)
        sin, cos = angles.sin()[None], angles.cos()[None]
    else:
        sin, cos = create_sinusoidal_positions(13, 8)[None].chunk(2, dim=-1)
    x = torch.randn(2, 13, DIM, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x, is_causal=True), [x, ours.q_proj.weight, ours.k_proj.weight]),
        (theirs(x, (sin, cos))[0], [x, theirs.q_proj.weight, theirs.k_proj.weight]),
    )


def test_gpt_neox_layer_half_split_and_partial(dtype, implementation, assert_same, copy_linear):
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    )
    config._attn_implementation = "sdpa"  # the eager path has its softmax in float32
    theirs = GPTNeoXAttention(config, layer_idx=0).to(dtype)
    ours = rb.RelativeAttention(DIM, HEADS, rope(rotary_dim=SIZE // 4), implementation=implementation, dtype=dtype)
    # GPT-NeoX holds the rows of each head's q, k and v together.
    weights = theirs.query_key_value.weight.view(HEADS, 3, SIZE, DIM).unbind(1)
    biases = theirs.query_key_value.bias.view(HEADS, 3, SIZE).unbind(1)
    for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
        copy_linear(getattr(ours, name), weight.flatten(0, 1), bias.flatten())
    copy_linear(ours.out_proj, theirs.dense.weight, theirs.dense.bias)
    tables = half_split_tables(GPTNeoXRotaryEmbedding(config), torch.arange(13)[None], dtype)
    x = torch.randn(2, 13, DIM, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x, is_causal=True), [x, ours.q_proj.weight]),
        (theirs(x, None, position_embeddings=tables)[0], [x, theirs.query_key_value.weight]),
        [lambda g: g, lambda g: g.view(HEADS, 3, SIZE, DIM)[:, 0].flatten(0, 1)],
    )
