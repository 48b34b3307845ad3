"""Recomputation in the backward pass uses the grid of the forward call that it repeats."""

import threading

import pytest
import torch
from tests.plugins.timm.images import TALL, WIDE, images_of
from timm.layers import set_reentrant_ckpt
from torch.utils.checkpoint import checkpoint

from relbias.plugins.timm import attn_layer


def gradients(model, checkpointing, crops=(TALL, WIDE), in_thread=False):
    """Of one backward pass after a forward pass of each crop."""
    model.zero_grad()
    model.set_grad_checkpointing(checkpointing)
    loss = sum(model(images_of(grid)).square().sum() for grid in crops)
    if in_thread:
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    else:
        loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("in_thread", [False, True])
def test_two_crops_and_one_backward_when_checkpointed(model, reentrant, in_thread):
    wanted = gradients(model, checkpointing=False)
    set_reentrant_ckpt(reentrant)
    try:
        found = gradients(model, checkpointing=True, in_thread=in_thread)
    finally:
        set_reentrant_ckpt(False)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5, msg=name)
    name = "blocks.0.attn.encoding.table"
    only_tall = gradients(model, checkpointing=False, crops=(TALL, TALL))[name]
    assert (only_tall - wanted[name]).abs().max() > 1e-3


def test_checkpointing_recomputes(model):
    calls = []
    model.blocks[0].attn.register_forward_hook(lambda *_: calls.append(1))
    gradients(model, checkpointing=True)
    assert len(calls) == 4


def test_saved_tensors_may_be_moved(model):
    wanted = gradients(model, checkpointing=False)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True).copy(), torch.from_numpy):
        found = gradients(model, checkpointing=True)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_whole_forward_checkpointed_by_the_caller(model):
    wanted = gradients(model, checkpointing=False)
    model.zero_grad()
    crops = [images_of(grid).requires_grad_() for grid in (TALL, WIDE)]
    sum(checkpoint(model, crop, use_reentrant=False).square().sum() for crop in crops).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], rtol=1e-4, atol=1e-5, msg=name)


def test_single_block_checkpointed_by_the_caller_is_refused(model):
    block = model.blocks[0]
    run = block.forward
    block.forward = lambda x, **_: checkpoint(run, x, use_reentrant=False)
    loss = model(images_of(TALL)).sum()
    with pytest.raises(ValueError, match=r"grid is unknown; checkpoint with model\.set_grad_checkpointing"):
        loss.backward()


def test_attn_layer_can_be_checkpointed(make_vit):
    model = make_vit(attn_layer=attn_layer("table", grid=(4, 4)))
    wanted = gradients(model, False, crops=((4, 4),))
    found = gradients(model, True, crops=((4, 4),))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
