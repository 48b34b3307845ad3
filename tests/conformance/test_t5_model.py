"""A T5 of transformers whose attention layers are ours, with its weights: the same model, also step by step.

What is copied are the projections of every attention layer and the two tables of biases, one for the encoder's and one
for the decoder's layers; embeddings, RMS norms and networks stay the peer's.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5LayerNorm

import relbias as rb

DIM, HEADS, VOCABULARY, LAYERS = 32, 4, 23, 2


class Attention(nn.Module):
    """Our layer in the place of T5Attention."""

    def __init__(self, theirs, encoding, copy_linear, causal):
        super().__init__()
        dtype = theirs.q.weight.dtype
        self.attention = rb.RelativeAttention(DIM, HEADS, encoding, scale=1.0, qkv_bias=False, dtype=dtype)
        pairs = (("q_proj", theirs.q), ("k_proj", theirs.k), ("v_proj", theirs.v), ("out_proj", theirs.o))
        for name, layer in pairs:
            copy_linear(getattr(self.attention, name), layer.weight)
        self.causal, self.given = causal, {}

    def forward(self, hidden_states, key_value_states=None, **_):
        return self.attention(hidden_states, key_value_states, is_causal=self.causal, **self.given), None, None


def shared_table(stack, bidirectional):
    theirs = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    encoding = rb.encodings.T5(
        HEADS, DIM // HEADS, num_buckets=8, max_distance=10, bidirectional=bidirectional, dtype=theirs.dtype
    )
    with torch.no_grad():
        encoding.table.copy_(theirs.T)
    return encoding


@pytest.fixture
def pair(dtype, copy_linear):
    """The peer, and a copy of it with our attention."""
    torch.manual_seed(0)
    config = T5Config(
        d_model=DIM,
        d_kv=DIM // HEADS,
        d_ff=48,
        num_layers=LAYERS,
        num_heads=HEADS,
        vocab_size=VOCABULARY,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=None,
        initializer_factor=2.0,
        attn_implementation="eager",
    )
    theirs = T5ForConditionalGeneration(config).to(dtype).eval()
    if dtype == torch.float64:  # the peer's norms are float32 in any model
        for module in list(theirs.modules()):
            for name, norm in module.named_children():
                if isinstance(norm, T5LayerNorm):
                    exact = nn.RMSNorm(DIM, norm.variance_epsilon, dtype=dtype)
                    exact.load_state_dict(norm.state_dict())
                    setattr(module, name, exact)
    ours = copy.deepcopy(theirs)
    for stack, bidirectional in ((ours.encoder, True), (ours.decoder, False)):
        encoding = shared_table(stack, bidirectional)
        for block in stack.block:
            layer = block.layer[0]
            layer.SelfAttention = Attention(layer.SelfAttention, encoding, copy_linear, not bidirectional)
            if not bidirectional:
                layer = block.layer[1]
                layer.EncDecAttention = Attention(layer.EncDecAttention, "none", copy_linear, causal=False)
    return ours, theirs


def inputs():
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(1, VOCABULARY, (2, 15), generator=generator)  # beyond max_distance
    return source, torch.randint(1, VOCABULARY, (2, 13), generator=generator)


def table_of(stack, ours):
    attention = stack.block[0].layer[0].SelfAttention
    return attention.attention.encoding.table if ours else attention.relative_attention_bias.weight


def test_logits_and_gradients(pair, assert_same):
    ours, theirs = pair
    source, target = inputs()
    tensors = [
        [model.shared.weight, table_of(model.encoder, model is ours), table_of(model.decoder, model is ours)]
        for model in (ours, theirs)
    ]
    mine, other = (model.decoder.block[1].layer[1].EncDecAttention for model in (ours, theirs))
    tensors[0] += [mine.attention.k_proj.weight, mine.attention.v_proj.weight]
    tensors[1] += [other.k.weight, other.v.weight]
    outs = [model(source, decoder_input_ids=target, use_cache=False).logits for model in (ours, theirs)]
    same = lambda g: g  # noqa: E731
    maps = [same, lambda g: g.T, lambda g: g.T, same, same]
    assert_same((outs[0], tensors[0]), (outs[1], tensors[1]), maps)


def test_steps_with_caches_and_a_padded_source(pair, dtype):
    """Ours step by step gives the peer's logits, and the tokens that the peer generates with its own cache."""
    ours, theirs = pair
    source, _ = inputs()
    padding = torch.arange(15) >= torch.tensor([15, 9])[:, None]
    mask = (~padding).long()
    tokens = theirs.generate(source, attention_mask=mask, max_new_tokens=12, do_sample=False, use_cache=True)
    caches = [(rb.KVCache(), rb.KVCache()) for _ in range(LAYERS)]
    for block in ours.encoder.block:
        block.layer[0].SelfAttention.given = {"key_padding_mask": padding}
    for (own, cross), block in zip(caches, ours.decoder.block, strict=True):
        block.layer[0].SelfAttention.given = {"cache": own}
        block.layer[1].EncDecAttention.given = {"cache": cross, "key_padding_mask": padding}
    with torch.no_grad():
        expected = theirs(source, attention_mask=mask, decoder_input_ids=tokens, use_cache=False).logits
        encoded, outs = ours.encoder(source), []
        for t in range(tokens.shape[1]):
            step = ours(encoder_outputs=encoded, decoder_input_ids=tokens[:, t : t + 1], use_cache=False)
            outs.append(step.logits)
            if t + 1 < tokens.shape[1]:
                assert torch.equal(outs[-1][:, -1].argmax(-1), tokens[:, t + 1])
    assert [(own.length, cross.length) for own, cross in caches] == [(13, 15)] * LAYERS
    tolerance = 1e-9 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(torch.cat(outs, dim=1), expected, rtol=0, atol=tolerance * expected.abs().max().item())
    assert len(tokens.unique()) > 3
