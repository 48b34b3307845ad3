"""Dropping a model's absolute positions leaves them out of its calls, and nothing else."""

import copy
import json

import pytest
import torch
from tests.plugins.timm.images import TALL, WIDE, images_of
from timm.optim import create_optimizer_v2

import relbias as rb
from relbias.plugins.timm import attach, detach, settings

MODELS = {
    "plain": ("vit_tiny_patch16_224", {}),
    "any size": ("vit_tiny_patch16_224", {"dynamic_img_size": True}),
    "distilled": ("deit_tiny_distilled_patch16_224", {"dynamic_img_size": True}),
    "not of prefix tokens": ("vit_tiny_patch16_224", {"no_embed_class": True, "reg_tokens": 2}),
}


@pytest.fixture(params=MODELS)
def models(request, make_vit):
    """Three equal models: one to attach to, one as it is, and one whose positions are zeros."""
    name, arguments = MODELS[request.param]
    model = make_vit(name, **arguments)
    with torch.no_grad():
        model.pos_embed.normal_()
    without = copy.deepcopy(model)
    torch.nn.init.zeros_(without.pos_embed)
    return model, copy.deepcopy(model), without


def test_dropped_positions_are_as_zeros(models):
    model, plain, without = models
    grids = [(4, 4), *([TALL, WIDE] if model.dynamic_img_size else [])]
    attach(model, "table", grid=(6, 6), drop_positions=True)
    with torch.no_grad():
        for grid in grids:
            images = images_of(grid)
            assert torch.equal(model(images), without(images))
            wanted = without.forward_intermediates(images)
            torch.testing.assert_close(model.forward_intermediates(images), wanted, rtol=0, atol=0)
            assert (model(images) - plain(images)).abs().max() > 1e-3
        assert torch.equal(model.pos_embed, plain.pos_embed)
        detach(model)
        assert torch.equal(model(images_of((4, 4))), plain(images_of((4, 4))))
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in model.state_dict().items())
    assert model.pos_embed.requires_grad
    assert [set(vars(a)) for a in model.modules()] == [set(vars(b)) for b in plain.modules()]


@pytest.mark.parametrize(
    ("name", "arguments", "parameter"),
    [
        ("beit_base_patch16_224", {"use_abs_pos_emb": True}, "pos_embed"),
        ("eva02_tiny_patch14_224", {"img_size": 56}, "pos_embed"),
        (
            "samvit_base_patch16_224",
            {"use_abs_pos": True, "neck_chans": 16, "global_attn_indexes": (1,), "window_size": 3},
            "pos_embed",
        ),
        ("naflexvit_base_patch16_gap", {"img_size": None}, "embeds.pos_embed"),
    ],
    ids=str,
)
def test_other_families(make_vit, name, arguments, parameter):
    model = make_vit(name, embed_dim=48, num_heads=2, **arguments)
    size = 56 if arguments.get("img_size") else 64
    images = torch.randn(1, 3, size, size)
    state = model.state_dict()
    torch.nn.init.normal_(state[parameter])
    without = copy.deepcopy(model)
    torch.nn.init.zeros_(without.state_dict()[parameter])
    with torch.no_grad():
        plain = model.forward_features(images)
        assert (plain - without.forward_features(images)).abs().max() > 1e-3
        attach(model, "table", drop_positions=True)
        assert torch.equal(model.forward_features(images), without.forward_features(images))
        found = model.forward_intermediates(images, intermediates_only=True)
        wanted = without.forward_intermediates(images, intermediates_only=True)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        assert not model.get_parameter(parameter).requires_grad
        detach(model)
        assert torch.equal(model.forward_features(images), plain)
    assert model.get_parameter(parameter).requires_grad


def test_dropped_positions_do_not_train(models):
    model, _, without = models
    attach(model, "table", drop_positions=True)
    model.set_grad_checkpointing()
    model(images_of((4, 4))).square().sum().backward()
    without(images_of((4, 4))).square().sum().backward()
    missing = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert missing == {name for name, p in without.named_parameters() if p.grad is None} - {"pos_embed"}
    assert model.pos_embed.grad is None
    torch.testing.assert_close(model.cls_token.grad, without.cls_token.grad, rtol=1e-3, atol=1e-3)
    optimizer = create_optimizer_v2(model, "adamw")
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert id(model.pos_embed) not in trained


def test_settings_and_weights_keep_the_choice(make_vit, train):
    model = make_vit(dynamic_img_size=True)
    attach(model, "table", grid=(6, 6), shared=True, drop_positions=True)
    train(model)
    written = json.loads(json.dumps(settings(model)))
    assert written == {"encoding": "table", "grid": [6, 6], "shared": True, "drop_positions": True}
    fresh = make_vit(dynamic_img_size=True)
    torch.nn.init.ones_(fresh.pos_embed)
    attach(fresh, **written)
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(images_of(TALL)), model(images_of(TALL)))
    assert torch.equal(copy.deepcopy(fresh)(images_of(TALL)), model(images_of(TALL)))
    detach(fresh)
    assert torch.equal(fresh(images_of(TALL)), make_vit(dynamic_img_size=True)(images_of(TALL)))


def test_set_input_size_resamples_the_positions_kept_for_later(make_vit):
    model, plain = make_vit(), make_vit()
    attach(model, "table", grid=(6, 6), drop_positions=True)
    for each in (model, plain):
        each.set_input_size(img_size=(96, 64))
    assert torch.equal(model.pos_embed, plain.pos_embed)
    assert not model.pos_embed.requires_grad
    assert (model(images_of(TALL)) - plain(images_of(TALL))).abs().max() > 1e-3
    detach(model)
    assert model.pos_embed.requires_grad
    assert torch.equal(model(images_of(TALL)), plain(images_of(TALL)))


def test_a_frozen_parameter_stays_frozen(make_vit):
    model = make_vit().requires_grad_(False)
    attach(model, "table", drop_positions=True)
    detach(model)
    assert not model.pos_embed.requires_grad


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("vit_tiny_patch16_224", {"pos_embed": "none"}),
        ("vit_relpos_small_patch16_224", {}),
        ("eva02_tiny_patch14_224", {"img_size": 56, "use_abs_pos_emb": False}),
    ],
    ids=str,
)
def test_a_model_without_positions_is_refused(make_vit, name, arguments):
    """Also one whose own are relative, or turn q and k."""
    model = make_vit(name, **arguments)
    with pytest.raises(ValueError, match="has no absolute positions to drop"):
        attach(model, "table", drop_positions=True)
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())
    attach(model, "table")


def test_refused_encodings_drop_nothing(make_vit):
    model = make_vit()
    with pytest.raises(ValueError, match="takes the relation Sequence"):
        attach(model, "rope", drop_positions=True)
    assert model.pos_embed.requires_grad
    assert "relbias_dropped" not in vars(model)
