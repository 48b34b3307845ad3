"""Transformer-XL's and XLNet's keys against XLNet of transformers, whose layer holds both: one stream and two."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import XLNetConfig, XLNetModel
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

import relbias as rb

DIM, HEADS, SIZE = 24, 3, 8
BATCH, LENGTH, MEMORY = 2, 7, 4
KEYS = MEMORY + LENGTH
NAMES = ("q", "k", "v", "o", "r", "r_w_bias", "r_r_bias", "r_s_bias", "seg_embed")


@pytest.fixture(params=["reference", "folded", "blockwise"])
def implementation(request):
    return request.param


def their_layer(dtype):
    torch.manual_seed(0)
    config = XLNetConfig(d_model=DIM, n_head=HEADS, dropout=0.0)
    layer = XLNetRelativeAttention(config).to(dtype)
    for name in NAMES:
        torch.nn.init.normal_(getattr(layer, name), std=0.4)
    return layer


def their_positions(monkeypatch, dtype, *, attn_type="bi", clamp_len=-1, bi_data=False):
    """The sinusoids that their model gives its layers, (K, B, d); in float64 where that is asked for."""
    model = SimpleNamespace(
        d_model=DIM,
        attn_type=attn_type,
        clamp_len=clamp_len,
        bi_data=bi_data,
        positional_embedding=XLNetModel.positional_embedding,
    )
    with monkeypatch.context() as patch:
        if dtype == torch.float64:
            patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        return XLNetModel.relative_positional_encoding(model, LENGTH, KEYS, bsz=BATCH)


def our_layer(theirs, encoding, relation, implementation, dtype):
    ours = rb.RelativeAttention(
        DIM, HEADS, encoding, relation, qkv_bias=False, implementation=implementation, dtype=dtype
    )
    with torch.no_grad():
        for name in ("q", "k", "v"):
            getattr(ours, f"{name}_proj").weight.copy_(getattr(theirs, name).flatten(1).T)
        ours.out_proj.weight.copy_(theirs.o.flatten(1))
        ours.out_proj.bias.zero_()
    return ours


def copy_offset(encoding, theirs):
    with torch.no_grad():
        encoding.projection.copy_(theirs.r.permute(1, 2, 0))
        encoding.u.copy_(theirs.r_w_bias)
        encoding.w.copy_(theirs.r_r_bias)
    return [encoding.projection, encoding.u, encoding.w]


OFFSET_MAPS = [lambda g: g.permute(1, 2, 0), lambda g: g, lambda g: g]
LAYER_MAPS = [lambda g: g.flatten(1).T] * 3 + [lambda g: g.flatten(1)]


def weights(ours):
    return [ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight, ours.out_proj.weight]


def finished(theirs, out, x):
    """What their layer does after attention: the residual and the layer normalisation."""
    return theirs.layer_norm(out + x)


@pytest.mark.parametrize("clamp_len", [None, 3])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_transformer_xl_with_memory(monkeypatch, dtype, implementation, assert_same, causal, clamp_len):
    theirs = their_layer(dtype)
    ours = our_layer(
        theirs,
        lambda *args: rb.encodings.TransformerXL(*args, clamp_len=clamp_len),
        None,
        implementation,
        dtype,
    )
    offset = copy_offset(ours.encoding, theirs)
    memory, x = torch.randn(BATCH, MEMORY, DIM, dtype=dtype), torch.randn(BATCH, LENGTH, DIM, dtype=dtype)
    x.requires_grad_()
    memory.requires_grad_()
    index = rb.relations.Sequence()(LENGTH, KEYS)
    out = ours(x, torch.cat((memory, x), dim=1), index=index, is_causal=causal)
    positions = their_positions(
        monkeypatch, dtype, attn_type="uni" if causal else "bi", clamp_len=-1 if clamp_len is None else clamp_len
    )
    hidden = torch.ones(LENGTH, KEYS, dtype=dtype).triu(MEMORY + 1)[:, :, None, None] if causal else None
    expected, _ = theirs(x.transpose(0, 1), None, hidden, None, positions, None, mems=memory.transpose(0, 1))
    assert_same(
        (finished(theirs, out, x), [x, memory, *weights(ours), *offset]),
        (
            expected.transpose(0, 1),
            [x, memory, theirs.q, theirs.k, theirs.v, theirs.o, theirs.r, theirs.r_w_bias, theirs.r_r_bias],
        ),
        [lambda g: g, lambda g: g, *LAYER_MAPS, *OFFSET_MAPS],
    )


def permutation_masks():
    """A random order of reading per item; (B, N, N), True where the query may not attend: in the query stream."""
    ranks = torch.stack([torch.randperm(LENGTH) for _ in range(BATCH)])
    return ranks[:, None] >= ranks[:, :, None]


@pytest.mark.parametrize("bi_data", [False, True])
@pytest.mark.parametrize("targets", [None, torch.tensor([[1, 4, 6], [0, 2, 5]])], ids=["all", "targets"])
def test_two_streams_with_segments(monkeypatch, dtype, implementation, assert_same, bi_data, targets):
    theirs = their_layer(dtype)
    pairs, sequence = rb.relations.Pairs(2), rb.relations.Sequence()
    ours = our_layer(
        theirs,
        {"offset": lambda *args: rb.encodings.XLNet(*args, bi_data=bi_data), "segment": "segment"},
        {"segment": pairs},
        implementation,
        dtype,
    )
    parts = ours.encoding.encodings
    offset = copy_offset(parts["offset"], theirs)
    with torch.no_grad():
        parts["segment"].w.copy_(theirs.r_s_bias)
        parts["segment"].keys.copy_(theirs.seg_embed.transpose(0, 1))

    rows = torch.arange(LENGTH).expand(BATCH, LENGTH) if targets is None else targets
    memory, h = torch.randn(BATCH, MEMORY, DIM, dtype=dtype), torch.randn(BATCH, LENGTH, DIM, dtype=dtype)
    g = torch.randn(BATCH, rows.shape[1], DIM, dtype=dtype)
    inputs = [x.requires_grad_() for x in (memory, h, g)]
    segments = torch.tensor([[0] * 6 + [1] * 5, [0] * 4 + [1] * 5 + [0] * 2])
    different = (segments[:, MEMORY:, None] != segments[:, None]).long()
    hidden_g = torch.nn.functional.pad(permutation_masks(), (MEMORY, 0))  # the memory is seen by all
    hidden_h = hidden_g & ~torch.nn.functional.pad(torch.eye(LENGTH, dtype=torch.bool), (MEMORY, 0))

    # Ours: two calls with the same keys and values.
    context = torch.cat((memory, h), dim=1)

    def stream(x, rows, hidden):
        chosen = [t.gather(1, rows[..., None].expand(-1, -1, KEYS)) for t in (different, hidden)]
        where = sequence(rows.shape[1], KEYS, rows + MEMORY, torch.arange(KEYS))
        index = {"offset": where, "segment": pairs(chosen[0])}
        return finished(theirs, ours(x, context, index=index, attn_mask=~chosen[1][:, None]), x)

    everything = torch.arange(LENGTH).expand(BATCH, LENGTH)
    out = torch.cat((stream(h, everything, hidden_h), stream(g, rows, hidden_g)), dim=1)

    # Theirs: tokens come first.
    def by_pair(mask):  # (B, N, M) to (N, M, B, 1)
        return mask.permute(1, 2, 0)[..., None].to(dtype)

    mapping = None
    if targets is not None:
        mapping = torch.nn.functional.one_hot(targets, LENGTH).permute(1, 2, 0).to(dtype)
    expected = theirs(
        h.transpose(0, 1),
        g.transpose(0, 1),
        by_pair(hidden_h),
        by_pair(hidden_g),
        their_positions(monkeypatch, dtype, bi_data=bi_data),
        torch.nn.functional.one_hot(different.permute(1, 2, 0), 2).to(dtype),
        mems=memory.transpose(0, 1),
        target_mapping=mapping,
    )
    assert_same(
        (out, [*inputs, *weights(ours), *offset, parts["segment"].w, parts["segment"].keys]),
        (torch.cat(expected).transpose(0, 1), [*inputs, *(getattr(theirs, name) for name in NAMES)]),
        [lambda g: g] * 3 + LAYER_MAPS + OFFSET_MAPS + [lambda g: g, lambda g: g.transpose(0, 1)],
    )


def test_memory_is_a_longer_context(dtype, implementation):
    """A segment with its memory gives what the whole text gives, with the keys to the right of a query as well."""
    torch.manual_seed(0)
    layer = rb.RelativeAttention(DIM, HEADS, "transformer_xl", implementation=implementation, dtype=dtype)
    for parameter in layer.encoding.parameters():
        torch.nn.init.normal_(parameter)
    text = torch.randn(BATCH, KEYS, DIM, dtype=dtype)
    index = rb.relations.Sequence()(LENGTH, KEYS)
    whole = layer(text)
    torch.testing.assert_close(layer(text[:, MEMORY:], text, index=index), whole[:, MEMORY:])
    mirrored = layer(text.flip(1)).flip(1)
    assert (whole - mirrored).abs().max() > 0.1  # left and right are told apart
    cache = rb.KVCache()
    first = layer(text[:, :MEMORY], cache=cache, is_causal=True)
    second = layer(text[:, MEMORY:], cache=cache, is_causal=True)
    torch.testing.assert_close(torch.cat((first, second), dim=1), layer(text, is_causal=True))
