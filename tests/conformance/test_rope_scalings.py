"""RoPE's scalings against transformers: frequencies, attention factors and whole layers (Llama, Phi-3)."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig, Phi3Config, modeling_rope_utils
from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_get_mscale
from transformers.models.llama import modeling_llama
from transformers.models.phi3 import modeling_phi3

import relbias as rb

DIM, HEADS, N = 64, 4, 13
SIZE = DIM // HEADS
SHORT, LONG = [1 + p / 10 for p in range(8)], [2.0 + p * p for p in range(8)]

# Ours, with its options; transformers' type, with its parameters; the length of training.
CASES = {
    "linear": ("rope_linear", {"factor": 2.5}, "linear", {"factor": 2.5}, 2048),
    "dynamic, short": ("rope_dynamic", {"factor": 3.0}, "dynamic", {"factor": 3.0}, 64),
    "dynamic, long": ("rope_dynamic", {"factor": 3.0}, "dynamic", {"factor": 3.0}, 8),
    "yarn": ("rope_yarn", {"factor": 8.0}, "yarn", {"factor": 8.0}, 200),
    "yarn, a ramp beyond the last pair": ("rope_yarn", {"factor": 8.0}, "yarn", {"factor": 8.0}, 5000),
    "yarn, ramp between pairs": (
        "rope_yarn",
        {"factor": 8.0, "truncate": False, "beta_fast": 20.0, "beta_slow": 2.0},
        "yarn",
        {"factor": 8.0, "truncate": False, "beta_fast": 20.0, "beta_slow": 2.0},
        2000,
    ),
    "yarn, a ramp without width": (
        "rope_yarn",
        {"factor": 8.0, "beta_fast": 1.0, "truncate": False},
        "yarn",
        {"factor": 8.0, "beta_fast": 1.0, "truncate": False},
        200,
    ),
    "yarn, mscale": (
        "rope_yarn",
        {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7},
        "yarn",
        {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7},
        200,
    ),
    "yarn, given factor": (
        "rope_yarn",
        {"factor": 8.0, "attention_factor": 1.4},
        "yarn",
        {"factor": 8.0, "attention_factor": 1.4},
        200,
    ),
    "llama3": (
        "rope_llama3",
        {"factor": 5.0},
        "llama3",
        {"factor": 5.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        200,
    ),
    "longrope, short": (
        "rope_longrope",
        {"short_factor": SHORT, "long_factor": LONG, "factor": 4.0},
        "longrope",
        {"short_factor": SHORT, "long_factor": LONG, "factor": 4.0},
        64,
    ),
    "longrope, long": (
        "rope_longrope",
        {"short_factor": SHORT, "long_factor": LONG, "factor": 4.0},
        "longrope",
        {"short_factor": SHORT, "long_factor": LONG, "factor": 4.0},
        8,
    ),
    "longrope, given factor": (
        "rope_longrope",
        {"short_factor": SHORT, "long_factor": LONG, "attention_factor": 1.4},
        "longrope",
        {"short_factor": SHORT, "long_factor": LONG, "attention_factor": 1.4, "factor": 4.0},
        8,
    ),
}


class InFloat64:
    """Torch, but what asks for float32 gets float64."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def theirs_in(monkeypatch):
    """Makes transformers compute its frequencies and angles, always in float32, in the dtype of the test."""

    def use(dtype):
        if dtype == torch.float64:
            for module in (modeling_rope_utils, modeling_llama, modeling_phi3):
                monkeypatch.setattr(module, "torch", InFloat64())
            monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
            torch.set_default_dtype(torch.float64)  # of a Python float times a length

    yield use
    torch.set_default_dtype(torch.float32)


def theirs(case, config_class=LlamaConfig, size=SIZE, **more):
    """The configuration of transformers."""
    _, _, kind, parameters, trained = CASES[case]
    config = config_class(
        hidden_size=HEADS * size,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        max_position_embeddings=trained,
        rope_parameters={"rope_type": kind, "rope_theta": 500.0, **parameters, **more},
        **({"pad_token_id": 0, "original_max_position_embeddings": trained} if config_class is Phi3Config else {}),
    )
    config._attn_implementation = "sdpa"  # the eager path has its softmax in float32
    return config


def ours(case, **more):
    name, options, _, _, trained = CASES[case]
    if name != "rope_linear":
        options = {**options, "original_max_position_embeddings": trained}
    return lambda heads, size, relation: rb.create_encoding(name, heads, size, relation, base=500.0, **options, **more)


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("case", CASES)
def test_frequencies_and_attention_factor(case, partial, theirs_in):
    theirs_in(torch.float64)
    size = 2 * SIZE if partial else SIZE
    config = theirs(case, size=size, partial_rotary_factor=SIZE / size)
    expected, factor = modeling_rope_utils.ROPE_INIT_FUNCTIONS[CASES[case][2]](config, seq_len=N)
    encoding = ours(case, rotary_dim=SIZE)(HEADS, size, rb.relations.Sequence())
    frequencies = encoding.frequencies(torch.arange(N)[None]).flatten()
    torch.testing.assert_close(frequencies, expected, rtol=1e-12, atol=0)
    assert encoding.attention_factor == pytest.approx(factor, rel=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_llama_layer(case, dtype, implementation, assert_same, copy_linear, theirs_in):
    theirs_in(dtype)
    torch.manual_seed(0)
    config = theirs(case)
    layer = modeling_llama.LlamaAttention(config, layer_idx=0).to(dtype)
    attention = rb.RelativeAttention(
        DIM, HEADS, ours(case), num_kv_heads=2, qkv_bias=False, implementation=implementation, dtype=dtype
    )
    for name in "qkv":
        copy_linear(getattr(attention, f"{name}_proj"), getattr(layer, f"{name}_proj").weight)
    copy_linear(attention.out_proj, layer.o_proj.weight)
    x = torch.randn(2, N, DIM, dtype=dtype, requires_grad=True)
    tables = modeling_llama.LlamaRotaryEmbedding(config)(x, torch.arange(N)[None])
    assert_same(
        (attention(x, is_causal=True), [x, attention.q_proj.weight, attention.k_proj.weight]),
        (layer(x, tables)[0], [x, layer.q_proj.weight, layer.k_proj.weight]),
    )


@pytest.mark.parametrize("case", ["longrope, short", "longrope, long", "longrope, given factor"])
def test_phi3_layer_of_which_half_the_dimensions_turn(case, dtype, assert_same, copy_linear, theirs_in):
    theirs_in(dtype)
    torch.manual_seed(0)
    config = theirs(case, Phi3Config, 2 * SIZE, partial_rotary_factor=0.5)
    layer = modeling_phi3.Phi3Attention(config, layer_idx=0).to(dtype)
    attention = rb.RelativeAttention(
        2 * DIM, HEADS, ours(case, rotary_dim=SIZE), num_kv_heads=2, qkv_bias=False, dtype=dtype
    )
    weights = layer.qkv_proj.weight.split([2 * DIM, DIM, DIM])
    for name, weight in zip("qkv", weights, strict=True):
        copy_linear(getattr(attention, f"{name}_proj"), weight)
    copy_linear(attention.out_proj, layer.o_proj.weight)
    x = torch.randn(2, N, 2 * DIM, dtype=dtype, requires_grad=True)
    tables = modeling_phi3.Phi3RotaryEmbedding(config)(x, torch.arange(N)[None])
    assert_same(
        (attention(x, is_causal=True), [x, attention.q_proj.weight]),
        (layer(x, tables, None)[0], [x, layer.qkv_proj.weight]),
        [lambda g: g, lambda g: g[: 2 * DIM]],
    )


def test_ntk_is_dynamic_ntk_at_one_length(theirs_in):
    """Dynamic NTK with factor s has the base of NTK with factor s at the length (2 s - 1) / s of that of training."""
    theirs_in(torch.float64)
    factor, trained = 4.0, 64
    config = LlamaConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=trained,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 500.0, "factor": factor},
    )
    expected, _ = modeling_rope_utils.ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=7 * trained // 4)
    encoding = rb.encodings.NTKRoPE(HEADS, SIZE, base=500.0, factor=factor)
    torch.testing.assert_close(encoding.frequencies(torch.arange(N)[None]), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("mscales", [(1.0, 1.0), (0.707, 0.707), (1.0, 0.5), (0.707, 0.0), (1.0, 0.0)])
def test_mscale_of_deepseek(mscales):
    """As DeepSeek's models have it: the ratio on cosines and sines, the square of the denominator on the scale."""
    mscale, mscale_all_dim = mscales
    encoding = rb.encodings.YaRN(HEADS, SIZE, factor=40.0, mscale=mscale, mscale_all_dim=mscale_all_dim)
    expected = yarn_get_mscale(40.0, mscale) / yarn_get_mscale(40.0, mscale_all_dim)
    assert encoding.attention_factor == pytest.approx(expected, rel=1e-14)
    plain = rb.encodings.YaRN(HEADS, SIZE, factor=40.0)
    assert plain.attention_factor == pytest.approx(0.1 * math.log(40.0) + 1, rel=1e-14)
