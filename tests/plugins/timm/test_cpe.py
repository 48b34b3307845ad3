"""CPE is applied once, to the tokens after the first block."""

import functools
import json

import pytest
import timm
import torch
from tests.plugins.timm.images import TALL, WIDE, images_of
from torch import nn

import relbias as rb
from relbias.plugins.timm import attach, attn_layer, detach, resize, settings

MODELS = {
    "plain": ("vit_tiny_patch16_224", {}),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 3, "class_token": False, "global_pool": "avg"}),
    "distilled": ("deit_tiny_distilled_patch16_224", {}),
    "post norm": ("vit_base_patch16_rpn_224", {"embed_dim": 96, "num_heads": 3}),
    "parallel": ("vit_small_patch16_18x2_224", {"embed_dim": 96, "num_heads": 3}),
}


def transcription(tokens, weight, bias, grid, prefix):
    """The tokens with the depthwise convolution added, written as in CPVT's code."""
    patches = tokens[:, prefix:]
    feature = patches.transpose(1, 2).view(len(tokens), -1, *grid)
    convolution = nn.Conv2d(feature.shape[1], feature.shape[1], 3, 1, 1, groups=feature.shape[1])
    convolution.weight, convolution.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    feature = convolution(feature) + feature
    return torch.cat((tokens[:, :prefix], feature.flatten(2).transpose(1, 2)), dim=1)


@pytest.mark.parametrize("kind", MODELS)
def test_starts_at_zero_and_is_a_convolution_after_the_first_block(make_vit, train, kind):
    name, arguments = MODELS[kind]
    model, plain = (make_vit(name, dynamic_img_size=True, **arguments) for _ in range(2))
    keys = set(model.state_dict())
    images = images_of(TALL)
    with torch.no_grad():
        before = plain.forward_features(images)
        attach(model, "cpe")
        assert torch.equal(model.forward_features(images), before)
    assert set(model.state_dict()) - keys == {"blocks.0.encoding.weight", "blocks.0.encoding.bias"}
    model.forward_features(images).square().sum().backward()
    assert model.blocks[0].encoding.weight.grad.abs().max() > 0
    train(model)
    for grid in (TALL, WIDE):
        tokens = plain.norm_pre(plain._pos_embed(plain.patch_embed(images_of(grid))))
        tokens = plain.blocks[0](tokens)
        encoding = model.blocks[0].encoding
        tokens = transcription(tokens, encoding.weight, encoding.bias, grid, plain.num_prefix_tokens)
        wanted = plain.norm(plain.blocks[1:](tokens))
        found = model.forward_features(images_of(grid))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    detach(model)
    with torch.no_grad():
        assert torch.equal(model.forward_features(images), before)
    assert set(model.state_dict()) == keys


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("beit_base_patch16_224", {"use_shared_rel_pos_bias": True, "use_rel_pos_bias": False}),
        ("eva02_tiny_patch14_224", {"img_size": 56}),
        ("vit_relpos_small_patch16_224", {}),
        ("vit_srelpos_small_patch16_224", {}),
        ("vit_relpos_base_patch16_rpn_224", {}),
    ],
    ids=str,
)
def test_other_families(make_vit, train, name, arguments):
    model, plain = (make_vit(name, embed_dim=48, num_heads=2, **arguments) for _ in range(2))
    images = torch.randn(2, 3, *model.patch_embed.img_size, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        before = plain.forward_features(images)
        attach(model, "cpe")
        assert torch.equal(model.forward_features(images), before)
    train(model)
    encoding, prefix = model.blocks[0].encoding, plain.num_prefix_tokens
    plain.blocks[0].register_forward_hook(
        lambda module, args, tokens: transcription(tokens, encoding.weight, encoding.bias, (4, 4), prefix)
    )
    assert (plain.forward_features(images) - before).abs().max() > 1e-3
    torch.testing.assert_close(model.forward_features(images), plain.forward_features(images), rtol=1e-4, atol=1e-4)
    detach(model)
    with torch.no_grad():
        assert torch.equal(model.forward_features(images), before)


def test_together_with_an_encoding_of_attention(make_vit, train, bias_mask):
    model, plain = make_vit(dynamic_img_size=True), make_vit(dynamic_img_size=True)
    attach(model, {"patches": "cpe", "pairs": "table"}, grid=(6, 6))
    with torch.no_grad():
        assert torch.equal(model(images_of(TALL)), plain(images_of(TALL)))
    train(model)
    tokens = plain._pos_embed(plain.patch_embed(images_of(TALL)))
    for block, theirs in zip(plain.blocks, model.blocks, strict=True):
        table = theirs.attn.encoding.encodings["pairs"].table
        tokens = block(tokens, attn_mask=bias_mask(table, (6, 6), TALL, 1))
        if block is plain.blocks[0]:
            encoding = theirs.encoding
            tokens = transcription(tokens, encoding.weight, encoding.bias, TALL, 1)
    torch.testing.assert_close(model.forward_features(images_of(TALL)), plain.norm(tokens), rtol=1e-4, atol=1e-4)
    fresh = make_vit(dynamic_img_size=True)
    attach(fresh, **json.loads(json.dumps(settings(model))))
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(images_of(WIDE)), model(images_of(WIDE)))
    resize(model, (7, 7))
    torch.testing.assert_close(fresh(images_of(WIDE)), model(images_of(WIDE)))
    assert model.blocks[0].encoding.relation.height == 7


@pytest.mark.parametrize(
    "encoding",
    [
        rb.encodings.CPE,
        functools.partial(rb.encodings.CPE, strength=0.1),
        rb.encodings.CPE(3, 64, rb.relations.Grid(4, 4, prefix_tokens=1)),
        {"a": "cpe"},
    ],
    ids=["class", "partial", "built", "mapping"],
)
def test_however_it_is_given(make_vit, train, encoding):
    model = make_vit(dynamic_img_size=True)
    images = images_of(TALL)
    with torch.no_grad():
        before = model(images)
        attach(model, encoding)
        assert torch.equal(model(images), before)
        train(model)
        assert (model(images) - before).abs().max() > 1e-3
    assert [name for name, m in model.named_modules() if isinstance(m, rb.Encoding)] == ["blocks.0.encoding"]


def test_two_crops_and_one_backward_when_checkpointed(make_vit, train):
    model = make_vit(dynamic_img_size=True)
    attach(model, "cpe")
    train(model)
    gradients = []
    for checkpointing in (False, True):
        model.zero_grad()
        model.set_grad_checkpointing(checkpointing)
        sum(model(images_of(grid)).square().sum() for grid in (TALL, WIDE)).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("learned", "'learned' is applied at the input"),
        ({"a": "sinusoidal", "b": "table"}, "'sinusoidal' .* is applied at the input"),
        ({"a": "cpe", "b": "cpe"}, "'cpe' .* is applied at the input and cannot be part of a sum"),
        ({"a": "cpe", "b": "rope"}, "'rope' takes the relation Sequence"),
    ],
    ids=str,
)
def test_refused(make_vit, encoding, message):
    model = make_vit()
    classes = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=message):
        attach(model, encoding)
    assert [type(module) for module in model.modules()] == classes
    attach(model, "cpe")


def test_patch_dropout_is_refused(make_vit):
    model = make_vit(patch_drop_rate=0.5)
    with pytest.raises(ValueError, match="patch dropout leaves holes in the grid; create it with patch_drop_rate=0"):
        attach(model, "cpe")
    attach(model, "table")


def test_has_no_place_in_attention():
    with pytest.raises(ValueError, match="'cpe' is applied at the input, not in attention"):
        rb.plugins.torch.attach(nn.MultiheadAttention(8, 2), "cpe", relation=rb.relations.Grid(2, 2))
    layer = attn_layer("cpe", grid=(2, 2))
    with pytest.raises(ValueError, match="'cpe' is applied at the input, not in attention"):
        layer(8, num_heads=2)


def test_heads_that_do_not_divide_the_tokens_dimensions():
    model = timm.create_model("vit_tiny_patch16_224", img_size=48, embed_dim=40, depth=1, num_heads=2, num_classes=3)
    model.blocks[0].attn = timm.layers.Attention(40, num_heads=3, attn_head_dim=16)
    images = torch.randn(1, 3, 48, 48)
    with torch.no_grad():
        before = model.eval()(images)
        attach(model, "cpe")
        assert torch.equal(model(images), before)
