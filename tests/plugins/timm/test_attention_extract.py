"""timm's AttentionExtract by hooks sees the weights of an attached model as those of an untouched one."""

import pytest
import torch
from tests.plugins.timm.images import TALL, images_of
from timm.utils import AttentionExtract

import relbias as rb
from relbias.plugins.timm import attach


@pytest.mark.parametrize("hook_type", ["forward", "forward_pre"])
def test_weights_by_hooks(make_vit, train, bias_mask, hook_type):
    model = make_vit(dynamic_img_size=True)
    for block in model.blocks:
        block.attn.fused_attn = False
    encoding = rb.create_encoding("table", 3, 64, rb.relations.Grid(6, 6, prefix_tokens=1))
    attach(model, encoding)
    train(model)
    with rb.capture(model) as captured:
        wanted = model(images_of(TALL))
    maps = AttentionExtract(model, method="hook", hook_type=hook_type)(images_of(TALL))
    assert list(maps) == ["blocks.0.attn.attn_drop", "blocks.1.attn.attn_drop"]
    for found, record in zip(maps.values(), captured, strict=True):
        torch.testing.assert_close(found[0] if isinstance(found, tuple) else found, record.weights)
    assert torch.equal(model(images_of(TALL)), wanted)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_dwee_patch16_reg1_gap_256"])
def test_equals_that_of_the_untouched_model(make_vit, name):
    model, plain = (make_vit(name, embed_dim=96, num_heads=2) for _ in range(2))
    attach(model, "table")
    for block in (*model.blocks, *plain.blocks):
        block.attn.fused_attn = False
    maps, wanted = (AttentionExtract(each, method="hook")(images_of((4, 4))) for each in (model, plain))
    assert len(wanted) == 2
    torch.testing.assert_close(maps, wanted)
