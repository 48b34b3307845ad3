"""DeBERTa's attention, v1 and v2/v3, against transformers, and its buckets."""

from __future__ import annotations

import pytest
import torch
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta import modeling_deberta as v1
from transformers.models.deberta_v2 import modeling_deberta_v2 as v2

import relbias as rb
from relbias.encodings.deberta import log_buckets

HEADS, BATCH, LENGTH = 2, 2, 11
# Their scale is a square root in float32: a head size for which it is exact. 12 * 3 = 36, 8 * 2 = 16.
SIZES = {("c2p", "p2c"): 12, ("c2p",): 8, ("p2c",): 8}


@pytest.fixture(params=["reference", "folded", "blockwise"])
def implementation(request):
    return request.param


@pytest.fixture(params=SIZES, ids="+".join)
def kinds(request):
    return request.param


def our_layer(dim, kinds, implementation, dtype, **options):
    """A layer of ours; what comes after attention is theirs to do elsewhere, so the last projection does nothing."""
    ours = rb.RelativeAttention(
        dim,
        HEADS,
        lambda *args: rb.encodings.DeBERTa(*args, c2p="c2p" in kinds, p2c="p2c" in kinds, **options),
        scale="paper",
        implementation=implementation,
        dtype=dtype,
    )
    with torch.no_grad():
        ours.out_proj.weight.copy_(torch.eye(dim))
        ours.out_proj.bias.zero_()
    return ours


def settings(dim, kinds, **options):
    return {
        "hidden_size": dim,
        "num_attention_heads": HEADS,
        "relative_attention": True,
        "pos_att_type": list(kinds),
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **options,
    }


def inputs(dim, dtype):
    x = torch.randn(BATCH, LENGTH, dim, dtype=dtype, requires_grad=True)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    padding[1, 8:] = True
    return x, padding


def spread(module):
    """Large random parameters, so that each matters."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("buckets", [(6, 9), (32, 64), (-1, 4)])
def test_v2_and_v3(dtype, implementation, assert_same, copy_linear, kinds, shared, buckets):
    torch.manual_seed(0)
    dim = HEADS * SIZES[kinds]
    position_buckets, longest = buckets
    limits = {"position_buckets": position_buckets, "max_relative_positions": longest}
    config = DebertaV2Config(**settings(dim, kinds, share_att_key=shared, **limits))
    theirs = v2.DisentangledSelfAttention(config).to(dtype)
    spread(theirs)
    limits["position_buckets"] = position_buckets if position_buckets > 0 else None
    ours = our_layer(dim, kinds, implementation, dtype, share_att_key=shared, **limits)
    encoding = ours.encoding
    spread(encoding)
    for mine, other in (("q", "query"), ("k", "key"), ("v", "value")):
        layer = getattr(theirs, f"{other}_proj")
        copy_linear(getattr(ours, f"{mine}_proj"), layer.weight, layer.bias)
    embeddings = torch.nn.Parameter(encoding.embeddings.detach().clone())
    norm = torch.nn.LayerNorm(dim, eps=config.layer_norm_eps, dtype=dtype)
    pairs = [(encoding.embeddings, embeddings), (ours.q_proj.weight, theirs.query_proj.weight)]
    pairs += [(ours.k_proj.weight, theirs.key_proj.weight), (ours.v_proj.weight, theirs.value_proj.weight)]
    if shared:
        pairs += [(encoding.norm_weight, norm.weight)]
        with torch.no_grad():
            norm.bias.copy_(encoding.norm_bias)
    else:
        if "c2p" in kinds:
            pairs += [(encoding.key_weight, theirs.pos_key_proj.weight)]
        if "p2c" in kinds:
            pairs += [(encoding.query_weight, theirs.pos_query_proj.weight)]
            pairs += [(encoding.query_bias, theirs.pos_query_proj.bias)]
    with torch.no_grad():
        for mine, other in pairs:
            other.copy_(mine)
    if "p2c" in kinds:  # without it a bias of k shifts whole rows of logits, so that its gradient is zero
        pairs += [(ours.k_proj.bias, theirs.key_proj.bias)]
        pairs += [(encoding.norm_bias, norm.bias)] * shared
    x, padding = inputs(dim, dtype)
    table = norm(embeddings) if shared else embeddings
    expected, _ = theirs(x, ~padding[:, None, None], rel_embeddings=table)
    assert_same(
        (ours(x, key_padding_mask=padding), [x, *(mine for mine, _ in pairs)]),
        (expected, [x, *(other for _, other in pairs)]),
    )


@pytest.mark.parametrize("longest", [4, 30])  # clamped; more embeddings than the text has distances
def test_v1(dtype, implementation, assert_same, copy_linear, kinds, longest):
    torch.manual_seed(0)
    dim = HEADS * SIZES[kinds]
    theirs = v1.DisentangledSelfAttention(DebertaConfig(**settings(dim, kinds, max_relative_positions=longest)))
    theirs = theirs.to(dtype)
    spread(theirs)
    ours = our_layer(dim, kinds, implementation, dtype, position_buckets=None, max_relative_positions=longest)
    encoding = ours.encoding
    spread(encoding)
    # Their projection holds q, k and v of a head side by side; k has no bias.
    q, k, v = (w.flatten(0, 1) for w in theirs.in_proj.weight.view(HEADS, 3, SIZES[kinds], dim).unbind(1))
    for layer, weight, bias in (
        (ours.q_proj, q, theirs.q_bias),
        (ours.k_proj, k, None),
        (ours.v_proj, v, theirs.v_bias),
    ):
        copy_linear(layer, weight, bias)
    embeddings = torch.nn.Parameter(encoding.embeddings.detach().clone())
    pairs = [(encoding.embeddings, embeddings)]
    if "c2p" in kinds:
        pairs += [(encoding.key_weight, theirs.pos_proj.weight)]
    if "p2c" in kinds:
        pairs += [(encoding.query_weight, theirs.pos_q_proj.weight), (encoding.query_bias, theirs.pos_q_proj.bias)]
    with torch.no_grad():
        for mine, other in pairs:
            other.copy_(mine)
    pairs += [(ours.q_proj.bias, theirs.q_bias), (ours.v_proj.bias, theirs.v_bias)]
    x, padding = inputs(dim, dtype)
    distances = v1.build_relative_position(x, x)
    expected, _ = theirs(x, ~padding[:, None, None], relative_pos=distances, rel_embeddings=embeddings)
    assert_same(
        (ours(x, key_padding_mask=padding), [x, *(mine for mine, _ in pairs)]),
        (expected, [x, *(other for _, other in pairs)]),
    )


@pytest.mark.parametrize(
    ("position_buckets", "longest"), [(256, 512), (32, 128), (64, 512), (256, 600), (7, 40), (2, 9), (128, 66)]
)
def test_buckets_of_every_distance(position_buckets, longest):
    distances = torch.arange(-4096, 4097)
    expected = v2.make_log_bucket_position(distances, position_buckets, longest)
    assert torch.equal(log_buckets(distances, position_buckets, longest), expected.long())


def test_codes_of_one_query_far_from_its_keys():
    """Where there are fewer queries than keys transformers swaps the two sizes, and has 200, -10077 and -55237."""
    assert log_buckets(torch.tensor([200, 300, 600]), 256, 512).tolist() == [169, 207, 270]
    (entry,) = rb.encodings.DeBERTa(1, 4)(rb.relations.Sequence()(1, 601)).entries
    codes = entry.index.codes()[0, 0, 0]
    assert codes[[600 - 200, 600 - 300, 0]].tolist() == [256 + 169, 256 + 207, 511]  # the last one is clamped
    assert entry.K is not None
    assert entry.Q is not None
