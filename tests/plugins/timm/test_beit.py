"""Beit."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import HostCase, moved, randomised

import relbias as rb
from relbias.attention import folded
from relbias.plugins.timm import attach, list_models


class TestBeit(HostCase):
    architecture = "beit_base_patch16_224"
    arguments = {"depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5, "init_values": None}
    sizes = "set"


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_host_bias_stays_and_trains(own, shared, qkv_bias, separate, fused):
    model = randomised(
        timm.models.beit.Beit(
            img_size=(48, 80),
            embed_dim=48,
            depth=2,
            num_heads=2,
            num_classes=3,
            qkv_bias=qkv_bias,
            use_rel_pos_bias=own,
            use_shared_rel_pos_bias=shared,
        )
    )
    for block in model.blocks:
        block.attn.qkv_bias_separate = separate
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


def test_other_threads_keep_their_kernels(monkeypatch):
    """The plain kernel that a bias of three axes gets from torch is asked for in its own thread alone."""
    model = randomised(
        timm.models.beit.Beit(img_size=(48, 80), embed_dim=48, depth=1, num_heads=2, use_shared_rel_pos_bias=True)
    )
    attach(model, "table")
    plain, enabled = folded.scaled_dot_product_attention, []

    def watching(*args, **arguments):
        enabled.append(torch.backends.cuda.flash_sdp_enabled())
        return plain(*args, **arguments)

    monkeypatch.setattr(folded, "scaled_dot_product_attention", watching)
    with torch.no_grad():
        model(torch.randn(1, 3, 48, 80))
    assert enabled == [True]


def test_our_table_equals_beits_own():
    """The same numbers in Beit's table, whose codes for the class token have another order."""
    size = {"img_size": (48, 80), "embed_dim": 48, "depth": 1, "num_heads": 2, "num_classes": 3}
    host = randomised(timm.models.beit.Beit(use_rel_pos_bias=True, **size))
    ours = randomised(timm.models.beit.Beit(**size))
    ours.load_state_dict(host.state_dict(), strict=False)
    rb.plugins.timm.attach(ours, "table")
    table = host.blocks[0].attn.relative_position_bias_table.detach().T  # ..., class to patch, patch to class, class
    with torch.no_grad():
        ours.blocks[0].attn.encoding.table.copy_(table)
    images = torch.randn(2, 3, 48, 80)
    torch.testing.assert_close(ours(images), host(images), rtol=1e-5, atol=1e-5)
    moved(ours)
    assert (ours(images) - host(images)).abs().max() > 1e-3


def test_listed():
    assert len([name for name in list_models("beit*") if name in timm.list_models(module="beit")]) == len(
        timm.list_models(module="beit")
    )
