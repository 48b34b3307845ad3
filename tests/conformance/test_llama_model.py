"""A Llama of transformers whose attention layers are ours, with its weights: the same model, also step by step.

What is copied are the projections of every attention layer; embeddings, RMS norms and gated networks stay the peer's.
"""

from __future__ import annotations

import copy

import pytest
import torch
from tests.conformance.test_rope import half_split_tables, rope
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

import relbias as rb

DIM, HEADS, KV_HEADS, VOCABULARY = 32, 4, 2, 23


class Attention(nn.Module):
    """Our layer in the place of LlamaAttention."""

    def __init__(self, theirs, copy_linear):
        super().__init__()
        dtype = theirs.q_proj.weight.dtype
        self.attention = rb.RelativeAttention(
            DIM, HEADS, rope(base=500.0), num_kv_heads=KV_HEADS, qkv_bias=False, dtype=dtype
        )
        for ours, name in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
            copy_linear(getattr(self.attention, f"{ours}_proj"), getattr(theirs, f"{name}_proj").weight)
        self.given = {}

    def forward(self, hidden_states, **_):
        return self.attention(hidden_states, is_causal=True, **self.given), None


class Rotary(nn.Module):
    """The peer's tables, in float64 made from frequencies in float64."""

    def __init__(self, theirs):
        super().__init__()
        self.theirs = theirs

    def forward(self, x, position_ids):
        return half_split_tables(self.theirs, position_ids, x.dtype)


@pytest.fixture
def pair(dtype, copy_linear):
    """The peer, and a copy of it with our attention."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=DIM,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        vocab_size=VOCABULARY,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        initializer_range=0.2,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",  # the eager path has its softmax in float32
    )
    theirs = LlamaForCausalLM(config).to(dtype).eval()
    if dtype == torch.float64:  # the peer's norms and frequencies are float32 in any model
        theirs.model.rotary_emb = Rotary(LlamaRotaryEmbedding(config))
        for module in list(theirs.modules()):
            for name, norm in module.named_children():
                if isinstance(norm, LlamaRMSNorm):
                    exact = nn.RMSNorm(DIM, norm.variance_epsilon, dtype=dtype)
                    exact.load_state_dict(norm.state_dict())
                    setattr(module, name, exact)
    ours = copy.deepcopy(theirs)
    for layer in ours.model.layers:
        layer.self_attn = Attention(layer.self_attn, copy_linear)
    return ours, theirs


def give(model, of_layer):
    for number, layer in enumerate(model.model.layers):
        layer.self_attn.given = of_layer(number)


def test_logits_and_gradients(pair, assert_same):
    ours, theirs = pair
    tokens = torch.randint(1, VOCABULARY, (2, 13))
    tensors = [[model.model.embed_tokens.weight, model.model.layers[0].mlp.up_proj.weight] for model in (ours, theirs)]
    for name in ("q_proj", "k_proj", "v_proj"):
        tensors[0].append(getattr(ours.model.layers[1].self_attn.attention, name).weight)
        tensors[1].append(getattr(theirs.model.layers[1].self_attn, name).weight)
    assert_same(
        (ours(tokens, use_cache=False).logits, tensors[0]), (theirs(tokens, use_cache=False).logits, tensors[1])
    )


@pytest.mark.parametrize("prompt", [1, 6])
def test_steps_with_a_cache(pair, dtype, prompt):
    """Ours step by step gives the peer's logits, and the tokens that the peer generates with its own cache."""
    ours, theirs = pair
    tokens = theirs.generate(
        torch.randint(1, VOCABULARY, (2, prompt)), max_new_tokens=8, do_sample=False, use_cache=True
    )
    caches = [rb.KVCache() for _ in ours.model.layers]
    give(ours, lambda number: {"cache": caches[number]})
    with torch.no_grad():
        expected = theirs(tokens, use_cache=False).logits
        outs = [ours(tokens[:, :prompt], use_cache=False).logits]
        for t in range(prompt, tokens.shape[1]):
            assert torch.equal(outs[-1][:, -1].argmax(-1), tokens[:, t])
            outs.append(ours(tokens[:, t : t + 1], use_cache=False).logits)
    assert caches[0].length == tokens.shape[1] == prompt + 8
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(torch.cat(outs, dim=1), expected, rtol=0, atol=tolerance * expected.abs().max().item())


def test_steps_with_padding_at_the_left(pair, dtype):
    ours, theirs = pair
    tokens, lengths = torch.randint(1, VOCABULARY, (2, 9)), torch.tensor([9, 5])[:, None]
    padding = torch.arange(9) < 9 - lengths
    positions = rb.models.padded_positions(padding)
    caches, outs = [rb.KVCache() for _ in ours.model.layers], []
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=(~padding).long(), position_ids=positions, use_cache=False).logits
        for part in (slice(0, 6), slice(6, 7), slice(7, 9)):
            new = {"key_padding_mask": padding[:, part], "positions": positions[:, part]}
            give(ours, lambda number, new=new: {"cache": caches[number], **new})
            outs.append(ours(tokens[:, part], position_ids=positions[:, part], use_cache=False).logits)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    scale = expected.abs().max().item()
    torch.testing.assert_close(torch.cat(outs, dim=1)[~padding], expected[~padding], rtol=0, atol=tolerance * scale)
