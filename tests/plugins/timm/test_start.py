"""attach changes nothing until training does, whatever the member of the family; detach undoes it."""

import pytest
import timm
import torch

import relbias as rb
from relbias.encodings.base import find_encoding
from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach

FAMILY = {
    "plain": ("vit_tiny_patch16_224", {}),
    "distilled": ("deit_tiny_distilled_patch16_224", {}),
    "registers": ("vit_base_patch16_reg4_gap_256", {"embed_dim": 128, "num_heads": 4}),
    "no class token": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),
    "dynamic size": ("vit_tiny_patch16_224", {"dynamic_img_size": True}),
    "qk norm": ("vit_tiny_patch16_224", {"qk_norm": True, "scale_attn_norm": True}),
    "layer scale": ("vit_small_patch14_dinov2", {"img_size": 56, "embed_dim": 96, "num_heads": 2}),
    "post norm": ("vit_base_patch16_rpn_224", {"embed_dim": 96, "num_heads": 3}),
    "parallel": ("vit_small_patch16_18x2_224", {"embed_dim": 96, "num_heads": 3}),
    "attention pool": ("vit_base_patch16_siglip_224", {"embed_dim": 160, "num_heads": 2}),
}
ENCODINGS = ("table", "shaw", "rope_axial")
VALUES = {
    "shaw": ("shaw", {"values": True}),
    "shaw_axial": ("shaw_axial", {"values": True}),
    "irpe on all": ("irpe", {"rpe_on": "qkv"}),
    "irpe on values": ("irpe", {"rpe_on": "v", "method": "cross"}),
}
"""Encodings that add vectors to the values, and their options."""


@pytest.fixture(params=FAMILY)
def model(request, make_vit):
    name, arguments = FAMILY[request.param]
    return make_vit(name, **arguments)


def images_for(model, batch=2):
    return torch.randn(batch, 3, *model.patch_embed.img_size, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("encoding", [*ENCODINGS, "rope_mixed", "none", {"a": "table", "b": "rope_axial"}], ids=str)
def test_exactly_unchanged_until_moved_and_after_detach(model, train, encoding):
    images = images_for(model)
    keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
    with torch.no_grad():
        before = model(images)
        attach(model, encoding)
        assert set(keys) <= set(model.state_dict())
        assert (model(images) - before).abs().max() == 0.0
        train(model)
        if encoding != "none":
            assert (model(images) - before).abs().max() > 1e-3
        detach(model)
        assert (model(images) - before).abs().max() == 0.0
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == classes


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_first_step_moves_every_layer(model, encoding):
    images = images_for(model)
    before = model(images)
    attach(model, encoding)
    out = model(images)
    assert (out - before).abs().max() <= 1e-6 * max(1.0, float(before.detach().abs().max()))
    out.square().sum().backward()
    attached = encodings(model)
    assert len(attached) == sum(type(m).__name__ == "RelativeAttention" for m in model.modules()) >= 2
    for layer in attached:
        assert any(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


@pytest.mark.parametrize("name", VALUES)
def test_values_change_nothing_until_they_are_moved(model, train, name):
    encoding, options = VALUES[name]
    images = images_for(model)
    with torch.no_grad():
        before = model(images)
        attach(model, encoding, **options)
        assert (model(images) - before).abs().max() == 0.0
    out = model(images)
    assert (out - before).abs().max() <= 1e-6 * max(1.0, float(before.abs().max()))
    out.square().sum().backward()
    for layer in encodings(model):
        assert any(parameter.grad.abs().max() > 0 for key, parameter in layer.named_parameters() if "value" in key)
    with torch.no_grad():
        train(model)
        moved = model(images)
        assert (moved - before).abs().max() > 1e-3
        for layer in encodings(model):
            for key, parameter in layer.named_parameters():
                if "value" in key:
                    parameter.zero_()
        assert (model(images) - moved).abs().max() > 1e-3
        detach(model)
        assert torch.equal(model(images), before)


@pytest.mark.parametrize("enabled", [True, False])
def test_values_with_dropout(make_vit, train, enabled):
    model = make_vit(attn_drop_rate=0.5)
    attach(model, "shaw", values=True)
    train(model)
    images = images_for(model)
    exact = model(images)
    model.train()
    with torch.set_grad_enabled(enabled):
        out = model(images)
        assert (out - model(images)).abs().max() > 1e-3
    assert not torch.allclose(out, exact)
    if enabled:
        out.square().sum().backward()
        assert all(layer.values.grad.abs().max() > 0 for layer in encodings(model))


def over_a_grid():
    """The names of the encodings that a model with patches can have."""
    classes = {name: find_encoding(name) for name in rb.list_encodings()}
    return [
        name
        for name, cls in classes.items()
        if issubclass(rb.relations.Grid, cls.relations) and not hasattr(cls, "embed") and name != "none"
    ]


@pytest.mark.parametrize("name", over_a_grid())
def test_every_encoding_of_a_grid_starts_at_zero_and_trains(make_vit, name):
    architecture, arguments = FAMILY["registers"]  # pools patches: of a class token the last layer needs one row alone
    model = make_vit(architecture, **arguments)
    images = images_for(model)
    with torch.no_grad():
        before = model(images)
        attach(model, name)
        assert (model(images) - before).abs().max() == 0.0
    new = {key: p for key, p in model.named_parameters() if ".encoding." in key}
    moved = set()
    for step in range(3):
        grads = torch.autograd.grad(model(images).square().sum(), list(new.values()))
        trained = [key for key, grad in zip(new, grads, strict=True) if grad.abs().max() > 0]
        assert step or {key.split(".")[1] for key in trained} == {"0", "1"}
        moved.update(trained)
        with torch.no_grad():
            for parameter, grad in zip(new.values(), grads, strict=True):
                parameter -= 0.01 * grad / (1e-9 + grad.abs().max())
    assert moved == set(new)


def test_pooling_is_not_a_site(make_vit):
    model = make_vit("vit_base_patch16_siglip_224", embed_dim=160, num_heads=2)
    attach(model, "table")
    assert [name for name in model.state_dict() if "encoding" in name] == [
        "blocks.0.attn.encoding.table",
        "blocks.1.attn.encoding.table",
    ]


@pytest.mark.parametrize(("dim", "heads"), [(192, 3), (144, 2), (96, 3), (160, 2)])
def test_exact_at_any_head_size(make_vit, dim, heads):
    model = make_vit(embed_dim=dim, num_heads=heads)
    images = images_for(model)
    with torch.no_grad():
        before = model(images)
        attach(model, "table")
        assert (model(images) - before).abs().max() == 0.0


@pytest.mark.parametrize(("encoding", "options"), [("table", {}), VALUES["irpe on all"]], ids=str)
@pytest.mark.parametrize("dim", [192, 96])  # the scale of a head size of 32 is no power of two
def test_without_fused_attention(make_vit, train, dim, encoding, options):
    model = make_vit(embed_dim=dim)
    for block in model.blocks:
        block.attn.fused_attn = False
    images = images_for(model)
    with torch.no_grad():
        before = model(images)
        attach(model, encoding, **options)
        assert (model(images) - before).abs().max() == 0.0
        train(model)
        unfused = model(images)
        for block in model.blocks:
            block.attn.fused_attn = True
        torch.testing.assert_close(unfused, model(images), rtol=1e-5, atol=1e-5)


def test_gated_attention(make_vit):
    model = make_vit()
    torch.manual_seed(3)
    attention = timm.layers.Attention(192, num_heads=3, qkv_bias=True, gated=True).eval()
    model.blocks[0].attn = attention
    images = images_for(model)
    with torch.no_grad():
        before = model(images)
        attach(model, "table")
        assert (model(images) - before).abs().max() == 0.0


@pytest.mark.parametrize("mask", ["boolean", "float", "causal"])
def test_users_mask_joins_the_encoding(make_vit, train, bias_mask, mask):
    model = make_vit()
    table = rb.create_encoding("table", 3, 64, rb.relations.Grid(4, 4, prefix_tokens=1))
    images = images_for(model)
    given = torch.rand(17, 17, generator=torch.Generator().manual_seed(4))
    allowed = (given > 0.3) | torch.eye(17, dtype=torch.bool)
    arguments = {
        "boolean": {"attn_mask": allowed},
        "float": {"attn_mask": given},
        "causal": {"is_causal": True},
    }[mask]
    added = {
        "boolean": torch.zeros(17, 17).masked_fill(~allowed, -torch.inf),
        "float": given,
        "causal": torch.full((17, 17), -torch.inf).triu(1),
    }[mask]
    with torch.no_grad():
        plain = model.forward_features(images, **arguments)
        attach(model, table)
        torch.testing.assert_close(model.forward_features(images, **arguments), plain, rtol=0, atol=1e-6)
        train(model)
        out = model.forward_features(images, **arguments)
        detach(model)
        wanted = model.forward_features(images, attn_mask=bias_mask(table.table, (4, 4), (4, 4), 1) + added)
        torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
        assert (out - plain).abs().max() > 1e-3


def test_keeps_parameters_hooks_mode_and_dtype(make_vit):
    model = make_vit(attn_drop_rate=0.5).double()
    model.blocks[1].attn.train()
    attention, calls = model.blocks[0].attn, []
    attention.register_forward_hook(lambda *_: calls.append("hook"))
    weight = attention.qkv.weight
    attach(model, "table")
    assert model.blocks[0].attn is attention
    assert attention.qkv.weight is weight
    assert attention.encoding.table.dtype == torch.float64
    assert not attention.encoding.training
    assert model.blocks[1].attn.encoding.training
    images = images_for(model).double()
    assert (model(images) - model(images)).abs().max() > 1e-6  # the second layer, in training mode, drops weights
    assert calls == ["hook", "hook"]
    model.eval()
    assert torch.equal(model(images), model(images))


def test_new_parameters_train_in_a_frozen_model(make_vit):
    model = make_vit().requires_grad_(False)
    attach(model, "table")
    model(images_for(model)).square().sum().backward()
    trained = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert trained == ["blocks.0.attn.encoding.table", "blocks.1.attn.encoding.table"]


def test_built_encoding_is_shared(make_vit):
    model = make_vit()
    encoding = rb.create_encoding("table", 3, 64, rb.relations.Grid(4, 4, prefix_tokens=1))
    images = images_for(model)
    with torch.no_grad():
        before = model(images)
        attach(model, encoding)
        assert (model(images) - before).abs().max() == 0.0
    assert model.blocks[0].attn.encoding is encoding
    assert model.blocks[1].attn.encoding is encoding


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "vit_small_patch16_224",
        "deit_tiny_distilled_patch16_224",
        "vit_base_patch16_reg4_gap_256",
        "vit_little_patch16_reg4_gap_256",
        "vit_small_patch14_dinov2",
        "vit_base_patch16_siglip_224",
        "vit_so400m_patch14_siglip_224",
        "deit3_small_patch16_224",
        "vit_base_patch16_clip_224",
        "aimv2_large_patch14_224",
    ],
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_architectures_at_their_own_size(make_vit, train, name, encoding):
    size = 224 if "dinov2" in name else None
    model = make_vit(name, img_size=size) if size else make_vit(name, img_size=int(name.rsplit("_", 1)[1]))
    images = images_for(model, batch=1)
    with torch.no_grad():
        before = model(images)
        attach(model, encoding)
        assert (model(images) - before).abs().max() == 0.0
        train(model)
        assert (model(images) - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("encoding", "options"), [("table", {}), ("shaw", {}), ("rope_axial", {}), *VALUES.values()], ids=str
)
def test_exact_where_a_mask_would_be_too_large_for_training(make_vit, monkeypatch, encoding, options):
    model = make_vit()
    image = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        before = model(image)
    rb.plugins.timm.attach(model, encoding, **options)
    monkeypatch.setattr("relbias.attention.functional._LARGEST_MASK", 10)
    monkeypatch.setattr("relbias.attention.blockwise._LOGITS_PER_BLOCK", 100)
    with torch.no_grad():
        assert torch.equal(model(image), before)
    assert (model(image) - before).abs().max() <= 1e-6
