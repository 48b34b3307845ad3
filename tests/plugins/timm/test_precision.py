"""Low precision, memory formats and inference mode, with an encoding attached."""

import copy

import pytest
import torch
from tests.plugins.timm.images import TALL, images_of

from relbias.plugins.timm import attach

ENCODINGS = ["table", "swin_v2", "irpe", "rope_axial", {"a": "cpe", "b": "table"}]


def error(found, wanted):
    return float(((found.float() - wanted).norm() / wanted.norm()).detach())


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("cast", [False, True])
def test_bfloat16(make_vit, train, encoding, cast):
    """The model with an encoding strays from float32 about as far as the one without, forward and backward."""
    model, plain = make_vit(dynamic_img_size=True), make_vit(dynamic_img_size=True)
    attach(model, encoding, grid=(6, 6))
    train(model)
    images, errors = images_of(TALL), []
    for each in (model, plain):
        wanted = each(images)
        wanted.square().sum().backward()
        gradient = each.blocks[0].attn.qkv.weight.grad
        low = copy.deepcopy(each)
        low.zero_grad()
        if cast:
            found = low.bfloat16()(images.bfloat16())
        else:
            with torch.autocast("cpu", torch.bfloat16):
                found = low(images)
        assert found.dtype == torch.bfloat16
        found.float().square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in low.parameters() if p.grad is not None)
        errors.append((error(found, wanted), error(low.blocks[0].attn.qkv.weight.grad, gradient)))
    (out, grad), (plain_out, plain_grad) = errors
    assert out < 4 * plain_out + 0.02
    assert grad < 4 * plain_grad + 0.05


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_channels_last(make_vit, train, encoding):
    model = make_vit(dynamic_img_size=True)
    attach(model, encoding, grid=(6, 6))
    train(model)
    wanted = model(images_of(TALL))
    model.to(memory_format=torch.channels_last)
    found = model(images_of(TALL).to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    found.square().sum().backward()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_inference_mode_then_training(make_vit, train, encoding):
    """What a call keeps for later calls must not be inference tensors, which autograd cannot save."""
    model = make_vit(dynamic_img_size=True)
    attach(model, encoding, grid=(6, 6))
    train(model)
    other = copy.deepcopy(model)
    with torch.inference_mode():
        model(images_of(TALL))
    for each in (model, other):
        each.train()
        each(images_of(TALL)).square().sum().backward()
    for (name, parameter), same in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (parameter.grad - same.grad).norm() <= 1e-3 * same.grad.norm(), name
