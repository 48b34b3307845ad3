"""In training an attached model drops the very things that the untouched one drops, until the encoding moves."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import moved, randomised
from torch import nn

from relbias.plugins.timm import attach, detach

SMALL = {"img_size": (48, 80), "depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5, "drop_path_rate": 0.3}
DROPS = {"attn_drop_rate": 0.3, "proj_drop_rate": 0.2, "pos_drop_rate": 0.1, "patch_drop_rate": 0.5, "drop_rate": 0.1}
MODELS = {
    "plain": ("vit_tiny_patch16_224", SMALL | DROPS),
    "difference": ("vit_dwee_patch16_reg1_gap_256", SMALL | DROPS),
    "beside its MLP": ("vit_dpwee_patch16_reg1_gap_256", SMALL | DROPS),
    "eva": ("vit_small_patch16_dinov3", SMALL | {"attn_drop_rate": 0.3, "patch_drop_rate": 0.5}),
    "swin v2": (
        "swinv2_tiny_window8_256",
        {"img_size": (48, 80), "embed_dim": 32, "depths": (1, 1), "num_heads": (2, 4), "window_size": (3, 5)}
        | {"attn_drop_rate": 0.3, "drop_path_rate": 0.3, "num_classes": 5},
    ),
}


def make(name, fused):
    torch.manual_seed(0)
    architecture, arguments = MODELS[name]
    model = randomised(timm.create_model(architecture, **arguments))
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    return model


def drawn(model):
    images = torch.rand(2, 3, 48, 80, generator=torch.Generator().manual_seed(2))
    torch.manual_seed(7)
    return model(images)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_same_draws_as_the_untouched_model(name, fused):
    model = make(name, fused).train()
    with torch.no_grad():
        wanted = drawn(model)
        assert (wanted - drawn(model.eval())).abs().max() > 1e-2
    attach(model.train(), "table")
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            torch.testing.assert_close(drawn(model), wanted, rtol=1e-5, atol=1e-5)
    moved(model)
    assert (drawn(model) - wanted).abs().max() > 1e-2
    detach(model)
    assert torch.equal(drawn(model), wanted)


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_layers_alone_in_training_mode(fused):
    """So dropout is used for uncertainty. Fused attention goes by the mode of the attention, as in timm."""
    model = make("plain", fused)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    wanted = drawn(model)
    attach(model, "table")
    torch.testing.assert_close(drawn(model), wanted, rtol=1e-5, atol=1e-5)
    assert (drawn(model) - drawn(model.eval())).abs().max() > 1e-3


def test_a_hook_on_the_dropout_changes_no_draw():
    model = make("plain", False).train()
    with torch.no_grad():
        wanted = drawn(model)
    attach(model, "table")
    for block in model.blocks:
        block.attn.attn_drop.register_forward_hook(lambda *_: None)
    torch.testing.assert_close(drawn(model), wanted, rtol=1e-5, atol=1e-5)
