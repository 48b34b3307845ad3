"""MaxViT and CoAtNet: partitions and maps of other sizes, and images of other sizes."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import randomised
from tests.plugins.timm.windowed import MAXXVIT, add_by_hand, attentions, images, make, set_fused

from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, resize, settings

WITHOUT_OWN_BIAS = {"transformer_rel_pos_type": ""}


def test_blocks_and_grids_of_different_sizes(train, bias_mask):
    arguments = {"transformer_window_size": (4, 6), "transformer_grid_size": (2, 3)}
    model, plain = make("maxvit", **arguments), make("maxvit", **arguments)
    attach(model, "table")
    train(model)
    found = encodings(model)
    assert [(e.relation.height, e.relation.width) for e in found] == [(4, 6), (2, 3)] * 4
    add_by_hand(plain, bias_mask, found)
    torch.testing.assert_close(model(images((128, 192))), plain(images((128, 192))), rtol=1e-4, atol=1e-5)


def test_partitions_do_not_depend_on_the_image(train, bias_mask):
    model, plain = make("maxvit"), make("maxvit")
    attach(model, "table")
    train(model)
    add_by_hand(plain, bias_mask, encodings(model))
    for size in ((128, 192), (256, 384)):
        torch.testing.assert_close(model(images(size)), plain(images(size)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_grid_of_a_map_comes_from_the_call(train, bias_mask, fused):
    """Without a bias of its own a CoAtNet takes images of any size."""
    model, plain = make("coatnet", **WITHOUT_OWN_BIAS), make("coatnet", **WITHOUT_OWN_BIAS)
    attach(model, "table", grid=(13, 12))
    train(model)
    found = encodings(model)
    assert [(e.relation.height, e.relation.width) for e in found] == [(13, 12), (7, 6)]
    for module in (model, plain):
        set_fused(module, fused)
    for size, maps in (
        ((128, 192), [(8, 12), (4, 6)]),
        ((192, 128), [(12, 8), (6, 4)]),
        ((208, 96), [(13, 6), (6, 3)]),
    ):
        handles = []
        for attention, encoding, grid in zip(
            [m for m in plain.modules() if type(m).__name__ == "Attention2d"], found, maps, strict=True
        ):
            mask = bias_mask(encoding.table, (encoding.relation.height, encoding.relation.width), grid, 0)
            handles.append(
                attention.register_forward_pre_hook(
                    lambda _, args, kwargs, mask=mask: (args, {"shared_rel_pos": mask}), with_kwargs=True
                )
            )
        torch.testing.assert_close(model(images(size)), plain(images(size)), rtol=1e-4, atol=1e-5)
        for handle in handles:
            handle.remove()
    with pytest.raises(ValueError, match=r"8x13 grid has offsets .* `resize`"):
        model(images((128, 208)))


def test_exactly_unchanged_where_values_are_multiplied_by_dimension():
    """Without fused attention; the rounding differs from that of the other order, of some numbers."""
    model, x = randomised(make("maxvit, nchw")), images((128, 192))
    set_fused(model, False)
    with torch.no_grad():
        before = model(x)
        attach(model, "shaw", values=True)
        assert torch.equal(model(x), before)


def test_two_sizes_and_one_backward_when_checkpointed(train):
    model = make("coatnet", **WITHOUT_OWN_BIAS)
    attach(model, "table", grid=(12, 12))
    train(model)
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        sum(model(images(size)).square().sum() for size in ((128, 192), (192, 128))).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["maxvit", "coatnet"])
def test_set_input_size_then_resize(name, train, bias_mask):
    model, plain = make(name), make(name)
    attach(model, "table")
    train(model)
    for changed in (model, plain):
        changed.set_input_size(img_size=(256, 128))
    with pytest.raises(ValueError, match="`resize`"):
        model(images((256, 128)))
    grid = attentions(plain)[0][1]
    resize(model, grid)
    assert settings(model)["grid"] == list(grid)
    add_by_hand(plain, bias_mask, encodings(model))
    torch.testing.assert_close(model(images((256, 128))), plain(images((256, 128))), rtol=1e-4, atol=1e-5)


def test_a_model_without_attention_is_refused():
    model = timm.create_model("coatnet_nano_rw_224", block_type=("C", "C", "C", "C"), **MAXXVIT)
    with pytest.raises(ValueError, match="not supported: none of its blocks attends"):
        attach(model, "table")


def test_own_grids_of_odd_maps():
    model = make("coatnet", img_size=(144, 176), **WITHOUT_OWN_BIAS)
    attach(model, "table")
    assert [(e.relation.height, e.relation.width) for e in encodings(model)] == [(9, 11), (5, 6)]
    assert torch.isfinite(model(images((144, 176)))).all()
