"""What the layer, its encodings, terms and attention refuse: a ValueError that says what was given and expected."""

from __future__ import annotations

import pytest
import torch

import relbias as rb
from relbias.relations import Grid, Pairs, Sequence

DIM, HEADS = 32, 4
RELATIONS = {"table": Grid(3, 3, prefix_tokens=1), "rope_axial": Grid(3, 3, prefix_tokens=1)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((30, 4), "dim must be a multiple of num_heads, got dim=30 and num_heads=4"),
        ((32, 0), "num_heads must be .* got 0"),
        ((32, 4, "t5", Grid(2, 2)), r"'t5' takes the relation Sequence, got Grid\(height=2"),
        ((32, 4, "rope_axial"), r"'rope_axial' takes the relation Grid or Volume, got Sequence"),
        ((32, 4, "table"), r"'table' needs a relation with a limited number of codes, got Sequence"),
        ((32, 4, "shawn"), "no encoding 'shawn'; did you mean 'shaw'"),
        ((32, 4, "zzz"), "no encoding 'zzz'; known: alibi, "),
        ((32, 4, "learned", Grid(2, 2)), r"'learned' is applied at the input.*encoding='none'"),
        ((32, 4, "sinusoidal"), "'sinusoidal' is applied at the input"),
        ((32, 4, rb.encodings.T5(8, 4)), "'t5' was built for 8 heads of 4, needed are 4 of 8"),
        ((32, 4, 3), "an encoding is a name, a mapping, a callable or a built encoding; got 3"),
        ((32, 4, lambda heads, size, relation: "t5"), "must return an Encoding, got str"),
        ((32, 4, {}), "at least one"),
        ((32, 4, {"a-b": "t5"}), "identifiers .* got 'a-b'"),
        ((32, 4, {"a": "t5"}, {"b": Sequence()}), r"relations for \['b'\] and encodings for \['a'\]"),
        ((32, 4, {"a": "sinusoidal"}), "'sinusoidal' .* applied at the input"),
    ],
)
def test_bad_layers(arguments, message):
    with pytest.raises(ValueError, match=message):
        rb.RelativeAttention(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads, got 4 and 3"),
        ({"num_kv_heads": 0}, "num_kv_heads must be .* got 0"),
        ({"dropout": 1.5}, "dropout is a probability from 0 to 1, got 1.5"),
        ({"implementation": "blocwise"}, "no implementation 'blocwise'; .*'?blockwise"),
        ({"scale": "papr"}, "'papr'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        rb.RelativeAttention(DIM, HEADS, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t5", {"bucket": 3}, "T5 has no option 'bucket'"),
        ("t5", {"num_bucket": 3}, "T5 has no option 'num_bucket'; did you mean 'num_buckets'"),
        ("t5", {"num_buckets": 3}, "an even number of buckets, at least 4, got num_buckets=3"),
        ("t5", {"max_distance": 8}, "max_distance must be above 8, got 8"),
        ("alibi", {"variant": "casual"}, "symmetric, causal, asymmetric, nonsymmetric; got 'casual'"),
        ("shaw", {"max_distance": -1}, "max_distance must be an integer of at least 0, got -1"),
        ("rope", {"rotary_dim": 3}, "rotary_dim must be even, from 2 to the head size 8, got 3"),
        ("rope", {"rotary_dim": 10}, "from 2 to the head size 8, got 10"),
        ("rope", {"base": 0.0}, "base must be a number above 0, got 0.0"),
        ("learned", {}, "max_length"),
    ],
)
def test_bad_encodings(name, options, message):
    with pytest.raises(ValueError, match=message):
        rb.create_encoding(name, HEADS, 8, **options)


@pytest.mark.parametrize(
    ("name", "x_shape", "arguments", "message"),
    [
        ("t5", (5, DIM), {}, r"x must have shape \(B, N, 32\), got \(5, 32\)"),
        ("t5", (2, 5, 16), {}, r"x must have shape \(B, N, 32\), got \(2, 5, 16\)"),
        ("none", (2, 5, DIM), {"context": torch.zeros(3, 5, DIM)}, r"context must have shape \(2, M, 32\), got \(3, 5"),
        ("none", (2, 5, DIM), {"context": torch.zeros(2, 5, 8)}, r"context must have shape \(2, M, 32\)"),
        (
            "none",
            (2, 5, DIM),
            {"context": torch.zeros(2, 5, DIM), "document_ids": torch.zeros(2, 5)},
            "of self-attention",
        ),
        ("t5", (2, 5, DIM), {"index": Sequence()(4)}, r"the index is of \(4, 4\) .* q and k have \(5, 5\)"),
        ("t5", (2, 5, DIM), {"index": {"a": Sequence()(5)}}, r"one relation takes one index.*\['a'\]"),
        ("t5", (2, 5, DIM), {"index": Grid(1, 5)()}, "Sequence"),
        (
            "t5",
            (2, 5, DIM),
            {"positions": torch.zeros(2, 4, dtype=torch.long)},
            r"shape \(5,\) or \(B, 5\), got \(2, 4",
        ),
        ("t5", (2, 5, DIM), {"positions": torch.zeros(3, 5, dtype=torch.long)}, "batch"),
        ("t5", (2, 5, DIM), {"positions": torch.arange(5), "index": Sequence()(5)}, "both index and positions"),
        ("table", (2, 9, DIM), {}, r"has 10 tokens, got 9 queries and 9 keys; pass index=grid\(height, width\)"),
        ("table", (2, 10, DIM), {"positions": torch.arange(10)}, "positions are of a Sequence"),
        ("rope_axial", (2, 10, DIM), {"index": Sequence()(10)}, "Grid"),
    ],
)
def test_bad_calls(name, x_shape, arguments, message):
    with pytest.raises(ValueError, match=message):
        rb.RelativeAttention(DIM, HEADS, name, RELATIONS.get(name))(torch.zeros(x_shape), **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: rb.Terms(b=torch.zeros(4, 2), index=Pairs(3)(torch.zeros(2, 2).long())),
            "b has 2 rows and the index 3",
        ),
        (
            lambda: rb.Terms(K=torch.zeros(4, 2, 8), index=Sequence(1)(3)),
            "K has 2 rows and the index 3 codes; `resize`",
        ),
        (lambda: rb.Terms(K=torch.zeros(4, 2, 8)), "the table K needs an index"),
        (lambda: rb.Terms(V=torch.zeros(4, 2, 8)), "the table V needs an index"),
        (lambda: rb.Terms(b=torch.zeros(4, 9), index=Sequence()(3)), "limited number of codes"),
        (lambda: rb.Terms(Q=torch.zeros(9, 8), index=Sequence(1)(3)), r"shape \(\[B,\] H or 1, R, D\), got \(9, 8\)"),
        (lambda: rb.Terms(b=torch.zeros(9), index=Sequence(1)(3)), r"shape \(\[B,\] H or 1, R\), got \(9,\)"),
        (lambda: rb.Terms(g=torch.zeros(1, 4, 3)), "there is no b"),
        (lambda: rb.Terms(w=torch.zeros(4, 8)), "there is no K"),
        (lambda: _rotating() + _rotating(), "at most one relation may rotate"),
    ],
)
def test_bad_terms(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _rotating():
    return rb.create_encoding("rope", HEADS, 8)(Sequence()(3))


CODES = Pairs(2)
Q, K = torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 5, 8)


@pytest.mark.parametrize(
    ("q", "k", "v", "terms", "message"),
    [
        (Q[0], K, K, {}, r"have shape \(batch, heads, tokens, head size\); got q \(4, 3, 8\)"),
        (Q, K.double(), K, {}, "one floating dtype, got torch.float32, torch.float64"),
        (Q.long(), K.long(), K.long(), {}, "one floating dtype, got torch.int64"),
        (Q[:1], K, K, {}, "the same batch size"),
        (Q, K, K[:, :2], {}, "the same heads and tokens"),
        (Q, K[..., :4], K, {}, "the same head size"),
        (Q, K[:, :3], K[:, :3], {}, "the heads of q must be a multiple of those of k and v"),
        (Q, K, K, {"b": torch.zeros(4, 3, 4)}, r"b has shape \(4, 3, 4\), which does not fit \(2, 4, 3, 5\)"),
        (Q, K, K, {"b": torch.zeros(3, 5), "index": Sequence(2)(3, 5)}, r"b has shape \(3, 5\), .* fit \(2, 4, 5\)"),
        (Q, K, K, {"K": torch.zeros(3, 5, 8), "index": Sequence(2)(3, 5)}, r"K has shape \(3, 5, 8\)"),
        (Q, K, K, {"Q": torch.zeros(4, 5, 4), "index": Sequence(2)(3, 5)}, r"Q has shape \(4, 5, 4\)"),
        (Q, K, K, {"V": torch.zeros(4, 5, 1), "index": Sequence(2)(3, 5)}, r"V has shape \(4, 5, 1\)"),
        (Q, K, K, {"u": torch.zeros(3, 8)}, r"u has shape \(3, 8\)"),
        (Q, K, K, {"u": torch.zeros(8)}, r"u has shape \(8,\)"),
        (Q, K, K, {"K": torch.zeros(1, 5, 8), "w": torch.zeros(8), "index": Sequence(2)(3, 5)}, r"w has shape \(8,\)"),
        (Q, K, K, {"b": torch.zeros(4, 3, 5), "g": torch.zeros(2, 4, 5)}, r"g has shape \(2, 4, 5\)"),
        (Q, K, K, {"b": torch.zeros(4, 5), "index": Sequence(2)(3)}, r"index is of \(3, 3\) .* q and k have \(3, 5\)"),
        (Q, K, K, {"b": torch.zeros(4, 2), "index": CODES(torch.zeros(3, 3, 5).long())}, r"batch|\(3, 1, 3, 5\)"),
        (Q, K, K, {"b": torch.zeros(4, 2), "index": CODES(torch.zeros(2, 3, 3, 5).long())}, r"heads|\(2, 3, 3, 5\)"),
    ],
)
def test_bad_tensors(implementation, q, k, v, terms, message):
    with pytest.raises(ValueError, match=message):
        rb.relative_attention(q, k, v, rb.Terms(**terms), implementation=implementation)


@pytest.mark.parametrize(
    ("q_shape", "k_shape", "message"),
    [
        ((1, 1, 4, 2), (1, 1, 5, 2), r"q_angles have shape \(1, 1, 4, 2\)"),
        ((1, 1, 3, 2), (1, 1, 1, 2), r"k_angles have shape \(1, 1, 1, 2\)"),
        ((1, 3, 3, 2), (1, 1, 5, 2), r"q_angles have shape \(1, 3, 3, 2\)"),
        ((1, 1, 3, 5), (1, 1, 5, 5), r"q_angles have shape \(1, 1, 3, 5\)"),
        ((2,), (2,), r"q_angles have shape \(2,\)"),
    ],
)
def test_bad_rotations(implementation, q_shape, k_shape, message):
    rotation = rb.terms.Rotation(torch.zeros(q_shape).double(), torch.zeros(k_shape).double())
    with pytest.raises(ValueError, match=message):
        rb.relative_attention(Q, K, K, rb.Terms(rotation=rotation), implementation=implementation)


@pytest.mark.parametrize("shape", [(4,), (3, 1, 1), (4, 3, 1), (1, 4, 1, 1)])
def test_bad_factors_of_a_rotation(implementation, shape):
    angles = torch.zeros(1, 1, 1, 2).double()
    rotation = rb.terms.Rotation(angles.expand(-1, -1, 3, -1), angles.expand(-1, -1, 5, -1), factor=torch.ones(shape))
    with pytest.raises(ValueError, match=r"factor is a number or one per head, \(4, 1, 1\)"):
        rb.relative_attention(Q, K, K, rb.Terms(rotation=rotation), implementation=implementation)
