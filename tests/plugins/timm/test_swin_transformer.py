"""Swin Transformers of all three kinds: windows of other sizes, and images of other sizes."""

import pytest
import timm
import torch
from tests.plugins.timm.windowed import add_by_hand, images, make

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, resize, settings

KINDS = ("swin", "swin v2", "swin v2 cr")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        ({"window_size": (6, 13)}, [(6, 13), (6, 12)]),
        ({"window_size": (20, 20)}, [(16, 20), (8, 12)]),
        ({"window_size": ((4, 6), (2, 3))}, [(4, 6), (2, 3)]),
        ({"window_size": (9, 13), "always_partition": True}, [(9, 13), (9, 13)]),
    ],
)
def test_each_stage_has_the_grid_of_its_window(kind, train, bias_mask, arguments, windows):
    model, plain = make(kind, **arguments), make(kind, **arguments)
    attach(model, "table")
    train(model)
    found = encodings(model)
    assert [(e.relation.height, e.relation.width) for e in found] == [w for w in windows for _ in range(2)]
    add_by_hand(plain, bias_mask, found)
    torch.testing.assert_close(model(images()), plain(images()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_any_size(kind, train, bias_mask):
    model, plain = (make(kind, window_size=(4, 6), strict_img_size=False) for _ in range(2))
    attach(model, "table")
    train(model)
    add_by_hand(plain, bias_mask, encodings(model))
    for size in ((64, 96), (96, 64), (52, 100)):
        torch.testing.assert_close(model(images(size)), plain(images(size)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_smaller_windows_at_once_larger_ones_after_resize(kind, train, bias_mask):
    model, plain = make(kind, window_size=(4, 6)), make(kind, window_size=(4, 6))
    attach(model, "table", grid=(6, 6))
    train(model)
    assert [e.relation.height for e in encodings(model)] == [6] * 4
    for changed in (model, plain):
        changed.set_input_size(window_size=((5, 3), (2, 4)))
    add_by_hand(plain, bias_mask, encodings(model))
    torch.testing.assert_close(model(images()), plain(images()), rtol=1e-4, atol=1e-5)

    model.set_input_size(img_size=(128, 128), window_size=(8, 8))
    with pytest.raises(ValueError, match=r"8x8 grid has offsets .* `resize`"):
        model(images((128, 128)))
    resize(model, (8, 8))
    assert settings(model) == {"encoding": "table", "grid": [8, 8]}
    assert [e.relation.height for e in encodings(model)] == [8] * 4
    assert torch.isfinite(model(images((128, 128)))).all()


@pytest.mark.parametrize("encoding", ["shaw", "alibi", "rope_axial", "swin_v2"])
def test_functions_of_the_offset_take_larger_windows(train, encoding):
    model = make("swin", window_size=(4, 6))
    attach(model, encoding)
    train(model)
    model.set_input_size(window_size=(8, 8))
    moved = model(images())
    detach(model)
    assert (model(images()) - moved).abs().max() > 1e-4


def test_a_resized_shared_table_fits_the_largest_window(train):
    model = make("swin", window_size=(4, 6), num_heads=(2, 2), head_dim=16)
    attach(model, "table", shared=True)
    train(model)
    assert len(encodings(model)) == 1
    model.set_input_size(window_size=((8, 8), (2, 3)))
    resize(model, (8, 8))
    assert torch.isfinite(model(images())).all()


def test_windows_of_one_patch(train):
    model = timm.create_model("swin_tiny_patch4_window7_224", img_size=32, embed_dim=24, depths=(1, 1, 1, 1)).eval()
    with torch.no_grad():
        before = model(images((32, 32)))
        for encoding in ("table", "swin_v2", "irpe", "alibi", "rope_axial"):
            attach(model, encoding)
            assert torch.equal(model(images((32, 32))), before)
            train(model)
            assert torch.isfinite(model(images((32, 32)))).all()
            detach(model)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_of_another_class_is_refused(kind):
    model = make(kind)
    list(model.children())[1][0].blocks[1].attn = torch.nn.Identity()
    with pytest.raises(ValueError, match="is not supported: its blocks attend by Identity, not by timm's Window"):
        attach(model, "table")
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())
