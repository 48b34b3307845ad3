"""Attached tables for another grid."""

import pytest
import torch

import relbias as rb
from relbias.plugins.timm import attach, detach, resize, settings


def images_of(height, width):
    return torch.randn(1, 3, 16 * height, 16 * width, generator=torch.Generator().manual_seed(2))


def test_resize_by_patches_keeps_the_output(make_vit, train):
    model = make_vit(dynamic_img_size=True)
    attach(model, "table")
    train(model)
    before = [model(images_of(*grid)) for grid in ((4, 4), (2, 3))]
    resize(model, (6, 7))
    assert model.blocks[0].attn.encoding.table.shape == (3, 11 * 13 + 3)
    after = [model(images_of(*grid)) for grid in ((4, 4), (2, 3))]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.isfinite(model(images_of(6, 7))).all()
    resize(model, (2, 3))
    assert torch.equal(model(images_of(2, 3)), before[1])
    with pytest.raises(ValueError, match="`resize`"):
        model(images_of(4, 4))


def test_resize_of_a_sum_a_shared_and_a_frozen_table(make_vit, train):
    model = make_vit(dynamic_img_size=True)
    attach(model, {"a": "table", "b": "shaw"})
    train(model)
    model.requires_grad_(False)
    before = model(images_of(4, 4))
    resize(model, (6, 6))
    assert torch.equal(model(images_of(4, 4)), before)
    assert torch.isfinite(model(images_of(6, 6))).all()
    assert not model.blocks[0].attn.encoding.encodings["a"].table.requires_grad
    assert model.blocks[0].attn.encoding.relation["b"].height == 6
    detach(model)
    shared = rb.create_encoding("table", 3, 64, rb.relations.Grid(4, 4, prefix_tokens=1))
    attach(model, shared)
    resize(model, (5, 5), unit="image")
    assert model.blocks[1].attn.encoding.table.shape == (3, 81 + 3)
    assert model.blocks[1].attn.encoding is shared


@pytest.mark.parametrize(
    ("encoding", "arguments", "message"),
    [
        ("table", {"grid": (0, 4)}, "height must be an integer of at least 1"),
        ("table", {"grid": (4,)}, r"grid is \(height, width\)"),
        ("table", {"grid": (6, 6), "unit": "pixel"}, "'pixel'"),
        ("shaw", {"grid": (6, 6)}, "'shaw' takes a grid of any size"),
        ({"a": "table", "b": "swin_v2"}, {"grid": (6, 6)}, r"pretrained_window=\(4, 4\)"),
    ],
)
def test_resize_refusals(make_vit, encoding, arguments, message):
    model = make_vit()
    attach(model, encoding)
    keys = {key: value.shape for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        resize(model, **arguments)
    assert {key: value.shape for key, value in model.state_dict().items()} == keys
    assert settings(model)["grid"] == [4, 4]
