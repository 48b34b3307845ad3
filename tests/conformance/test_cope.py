"""CoPE against x-transformers, and its whole layer against the same in plain attention."""

from __future__ import annotations

import pytest
import torch
from x_transformers.attend import Attend
from x_transformers.x_transformers import CoPE

import relbias as rb

DIM, HEADS, POSITIONS = 24, 3, 5
SIZE = DIM // HEADS


def make_attend(cope, scale):
    attend = Attend(causal=True, heads=HEADS, scale=scale, cope=cope)
    attend.attn_fn = torch.nn.Softmax(dim=-1)  # theirs is the same in float32 alone
    return attend


@pytest.mark.parametrize("scale", [None, 0.7, 2])
@pytest.mark.parametrize("num_kv_heads", [1, 3])
def test_causal_layer(dtype, implementation, assert_same, scale, num_kv_heads):
    torch.manual_seed(0)
    n = 12
    ours = rb.RelativeAttention(
        DIM,
        HEADS,
        lambda heads, size, relation: rb.encodings.CoPE(heads, size, relation, num_positions=POSITIONS),
        num_kv_heads=num_kv_heads,
        scale=scale,
        implementation=implementation,
        dtype=dtype,
    )
    torch.nn.init.normal_(ours.encoding.table)
    cope = CoPE(SIZE, HEADS, POSITIONS).to(dtype)
    with torch.no_grad():
        cope.pos_emb.copy_(ours.encoding.table)
    attend = make_attend(cope, scale)
    x = torch.randn(2, n, DIM, dtype=dtype, requires_grad=True)

    def heads(layer):
        return layer(x).unflatten(-1, (-1, SIZE)).transpose(1, 2)

    theirs, _ = attend(heads(ours.q_proj), heads(ours.k_proj), heads(ours.v_proj))
    weights = [ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]
    assert_same(
        (ours(x, is_causal=True), [x, ours.encoding.table, *weights]),
        (ours.out_proj(theirs.transpose(1, 2).flatten(2)), [x, cope.pos_emb, *weights]),
    )


def test_last_queries(dtype, implementation, assert_same):
    torch.manual_seed(0)
    n, m = 3, 9
    ours = rb.RelativeAttention(DIM, HEADS, "cope", dtype=dtype)
    torch.nn.init.normal_(ours.encoding.table)
    cope = CoPE(SIZE, HEADS, 64).to(dtype)
    with torch.no_grad():
        cope.pos_emb.copy_(ours.encoding.table)
    x = torch.randn(2, m, DIM, dtype=dtype, requires_grad=True)

    def project():
        layers = (ours.q_proj, ours.k_proj, ours.v_proj)
        return (layer(x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for layer in layers)

    q, k, v = project()
    terms = ours.encoding(rb.relations.Sequence()(n, m), x=x, attention=ours)
    out = rb.relative_attention(q[:, :, m - n :], k, v, terms, is_causal=True, implementation=implementation)
    q, k, v = project()
    theirs, _ = make_attend(cope, None)(q[:, :, m - n :], k, v)
    assert_same((out, [x, ours.encoding.table]), (theirs, [x, cope.pos_emb]))
