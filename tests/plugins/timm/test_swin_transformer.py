"""Swin's windows: which pairs of patches an encoding sees, and windows of other sizes."""

import pytest
import torch
from tests.plugins.timm.test_windows import images, make

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, resize, settings


def add_by_hand(model, bias_mask, tables):
    """Give each attention of a plain model a bias made pair by pair, through timm's own method."""
    attentions = [block.attn for stage in model.layers for block in stage.blocks]
    for attention, (table, grid) in zip(attentions, tables, strict=True):
        own = attention._get_rel_pos_bias()
        mask = bias_mask(table, grid, attention.window_size, 0)
        attention._get_rel_pos_bias = lambda own=own, mask=mask: own + mask


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        ({"window_size": (4, 6)}, [(4, 6), (4, 6)]),
        ({"window_size": (6, 13)}, [(6, 13), (6, 12)]),
        ({"window_size": (20, 20)}, [(16, 20), (8, 12)]),
        ({"window_size": ((4, 6), (2, 3))}, [(4, 6), (2, 3)]),
        ({"window_size": (3, 5), "always_partition": True}, [(3, 5), (3, 5)]),
        ({"window_size": (9, 13), "always_partition": True}, [(9, 13), (9, 13)]),
    ],
)
def test_same_as_timms_own_bias(train, bias_mask, fused, arguments, windows):
    model, plain = make("swin", **arguments), make("swin", **arguments)
    attach(model, "table")
    train(model)
    found = encodings(model)
    assert [(e.relation.height, e.relation.width) for e in found] == [w for w in windows for _ in range(2)]
    add_by_hand(plain, bias_mask, [(e.table, (e.relation.height, e.relation.width)) for e in found])
    for module in [*model.modules(), *plain.modules()]:
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    torch.testing.assert_close(model(images()), plain(images()), rtol=1e-4, atol=1e-5)


def test_images_of_any_size(train, bias_mask):
    arguments = {"window_size": (4, 6), "strict_img_size": False}
    model, plain = make("swin", **arguments), make("swin", **arguments)
    attach(model, "table")
    train(model)
    add_by_hand(plain, bias_mask, [(e.table, (4, 6)) for e in encodings(model)])
    for size in ((64, 96), (96, 64), (52, 100)):
        torch.testing.assert_close(model(images(size)), plain(images(size)), rtol=1e-4, atol=1e-5)


def test_smaller_windows_at_once_larger_ones_after_resize(train, bias_mask):
    model = make("swin", window_size=(4, 6))
    attach(model, "table", grid=(6, 6))
    train(model)
    assert [e.relation.height for e in encodings(model)] == [6] * 4
    model.set_input_size(window_size=((5, 3), (2, 4)))
    plain = make("swin", window_size=(4, 6))
    plain.set_input_size(window_size=((5, 3), (2, 4)))
    add_by_hand(plain, bias_mask, [(e.table, (6, 6)) for e in encodings(model)])
    torch.testing.assert_close(model(images()), plain(images()), rtol=1e-4, atol=1e-5)

    model.set_input_size(img_size=(128, 128), window_size=(8, 8))
    with pytest.raises(ValueError, match=r"8x8 grid has offsets .* `resize`"):
        model(images((128, 128)))
    resize(model, (8, 8))
    assert settings(model) == {"encoding": "table", "grid": [8, 8]}
    assert torch.isfinite(model(images((128, 128)))).all()


@pytest.mark.parametrize("encoding", ["shaw", "alibi", "rope_axial", "swin_v2"])
def test_functions_of_the_offset_take_larger_windows(train, encoding):
    model = make("swin", window_size=(4, 6))
    attach(model, encoding)
    train(model)
    model.set_input_size(window_size=(8, 8))
    moved = model(images())
    detach(model)
    assert (model(images()) - moved).abs().max() > 1e-3


def test_a_resized_shared_table_fits_the_largest_window(train):
    model = make("swin", window_size=(4, 6), num_heads=(2, 2), head_dim=16)
    attach(model, "table", shared=True)
    train(model)
    assert len(encodings(model)) == 1
    model.set_input_size(window_size=((8, 8), (2, 3)))
    resize(model, (8, 8))
    assert torch.isfinite(model(images())).all()


def test_attention_of_another_class_is_refused(train):
    model = make("swin")
    model.layers[0].blocks[1].attn = torch.nn.Identity()
    with pytest.raises(ValueError, match="its blocks attend by Identity, not by timm's WindowAttention"):
        attach(model, "table")
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())
