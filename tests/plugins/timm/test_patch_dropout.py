"""Patch dropout: attention knows which patches are left."""

import pytest
import torch
from tests.plugins.timm.images import WIDE, images_of

import relbias as rb
from relbias.plugins.timm import attach, detach


def kept_patches(images, patches):
    """What timm's dropout keeps next, drawn as it draws them, and the images again for two different items."""
    torch.manual_seed(3)
    kept = torch.argsort(torch.randn(len(images), patches), dim=-1)[:, : patches // 2]
    torch.manual_seed(3)
    return kept


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("tokens", [{}, {"reg_tokens": 2, "class_token": False, "global_pool": "avg"}])
def test_the_bias_is_that_of_the_patches_left(make_vit, train, bias_mask, tokens, checkpointing):
    plain, attached = (make_vit(img_size=(64, 96), patch_drop_rate=0.5, **tokens).train() for _ in range(2))
    p = plain.num_prefix_tokens
    encoding = rb.create_encoding("table", 3, 64, rb.relations.Grid(*WIDE, prefix_tokens=p))
    attach(attached, encoding)
    train(attached)
    attached.set_grad_checkpointing(checkpointing)
    images = torch.cat((images_of(WIDE), images_of(WIDE, seed=4)))
    kept = kept_patches(images, 24)
    tokens = torch.cat((torch.arange(p).expand(2, p), p + kept), dim=1)
    whole = bias_mask(encoding.table, WIDE, WIDE, p)[0]
    mask = torch.stack([whole[:, item][:, :, item] for item in tokens])
    expected = plain.forward_features(images, attn_mask=mask)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    expected.backward(cotangent)
    kept_patches(images, 24)
    out = attached.forward_features(images)
    out.backward(cotangent)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    wanted = dict(plain.named_parameters())
    for key, parameter in attached.named_parameters():
        if key in wanted and wanted[key].grad is not None:
            scale = wanted[key].grad.abs().max()
            torch.testing.assert_close(parameter.grad, wanted[key].grad, rtol=0, atol=float(1e-4 * scale))
    other = plain.forward_features(images, attn_mask=whole[None, :, : tokens.shape[1], : tokens.shape[1]])
    assert (other - expected).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["table", "irpe", "swin_v2", "rope_mixed", "alibi"])
def test_start_and_the_way_back(make_vit, name):
    plain, attached = (make_vit(img_size=(64, 96), patch_drop_rate=0.5).train() for _ in range(2))
    before = type(attached.patch_drop)
    attach(attached, name)
    images = images_of(WIDE)
    kept_patches(images, 24)
    wanted = plain(images)
    kept_patches(images, 24)
    torch.testing.assert_close(attached(images), wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(attached.eval()(images), plain.eval()(images), rtol=0, atol=1e-5)
    detach(attached)
    assert type(attached.patch_drop) is before


def test_a_dropout_that_may_drop_prefix_tokens_is_refused(make_vit):
    model = make_vit("deit_tiny_distilled_patch16_224", patch_drop_rate=0.5)
    with pytest.raises(ValueError, match="its patch dropout spares 1 of its 2 prefix tokens"):
        attach(model, "table")
    assert not any("Telling" in type(module).__name__ for module in model.modules())


def test_dropout_in_another_mode_than_its_model(make_vit):
    plain, attached = (make_vit(img_size=(64, 96), patch_drop_rate=0.5) for _ in range(2))
    attach(attached, "table")
    images = images_of(WIDE)
    for drops in (True, False):
        outs = []
        for model in (plain, attached):
            model.train(not drops)
            model.patch_drop.train(drops)
            kept_patches(images, 24)
            outs.append(model(images))
        torch.testing.assert_close(outs[1], outs[0], rtol=0, atol=1e-5)
