"""Capturing in an attached vision transformer."""

import pytest
import torch
from tests.plugins.timm.images import TALL, WIDE, images_of

import relbias as rb


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_layers_of_a_vision_transformer(model, bias_mask, fused, checkpointing):
    for block in model.blocks:
        block.attn.fused_attn = fused
    images = images_of(TALL)
    qkv = []
    model.blocks[1].attn.qkv.register_forward_hook(lambda module, args, out: qkv.append(out.detach()))
    model.set_grad_checkpointing(checkpointing)
    wanted = model(images)
    wanted.sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    qkv.clear()
    with rb.capture(model) as captured:
        found = model(images)
        model(images_of(WIDE))
        found.sum().backward()
    assert torch.equal(found, wanted)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert [record.name for record in captured] == ["blocks.0.attn", "blocks.1.attn"] * 2

    q, k, _ = qkv[0].view(1, 25, 3, 3, 64).permute(2, 0, 3, 1, 4)
    bias = bias_mask(model.blocks[1].attn.encoding.table, (6, 6), TALL, 1)
    expected = (q @ k.mT / 8.0 + bias).softmax(-1)
    torch.testing.assert_close(captured[1].weights, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(captured[3].weights, expected, atol=1e-2)
