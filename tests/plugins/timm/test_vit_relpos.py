"""VisionTransformerRelPos."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import HostCase, moved, randomised

from relbias.plugins.timm import attach, list_models

SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5}


class TestBias(HostCase):
    """A table in each layer."""

    architecture = "vit_relpos_small_patch16_224"
    arguments = SMALL
    sizes = "set"


class TestMlpWithClassToken(HostCase):
    """A network over log distances in each layer, and a class token."""

    architecture = "vit_srelpos_small_patch16_224"
    arguments = {**SMALL, "shared_rel_pos": False, "class_token": True, "rel_pos_type": "mlp"}
    sizes = "set"
    compiled = False


@pytest.mark.parametrize("kind", ["bias", "mlp", "mlp_swin"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_host_bias_stays_and_trains(kind, shared, class_token, fused):
    model = randomised(
        timm.models.vision_transformer_relpos.VisionTransformerRelPos(
            (48, 80), rel_pos_type=kind, shared_rel_pos=shared, class_token=class_token, qk_norm=True, **SMALL
        )
    )
    for block in model.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(2, 3, 48, 80)
    with torch.no_grad():
        before = model(images)
    model(images).square().sum().backward()
    wanted = {key: parameter.grad.clone() for key, parameter in model.named_parameters()}
    model.zero_grad()
    attach(model, "table")
    with torch.no_grad():
        assert torch.equal(model(images), before)
    model(images).square().sum().backward()
    found = {key: parameter.grad for key, parameter in model.named_parameters()}
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-5 * max(0.1, float(gradient.abs().max())))
    torch.manual_seed(0)
    model.train()  # the network drops hidden numbers in training
    assert (model(images) - before).abs().max() > (1e-4 if kind != "bias" else -1)


def test_our_table_equals_the_hosts():
    make = timm.models.vision_transformer_relpos.VisionTransformerRelPos
    host = randomised(make((48, 80), rel_pos_type="bias", **SMALL))
    ours = randomised(make((48, 80), rel_pos_type="bias", **SMALL))
    attach(ours, "table")
    with torch.no_grad():
        for block in ours.blocks:
            block.attn.encoding.table.copy_(block.attn.rel_pos.relative_position_bias_table.T)
            block.attn.rel_pos.relative_position_bias_table.zero_()
    images = torch.randn(2, 3, 48, 80)
    torch.testing.assert_close(ours(images), host(images), rtol=1e-5, atol=1e-5)
    assert (moved(ours)(images) - host(images)).abs().max() > 1e-3


def test_listed():
    names = timm.list_models(module="vision_transformer_relpos")
    assert len(names) == 14
    assert set(names) <= set(list_models())
