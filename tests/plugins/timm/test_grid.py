"""The grid comes from each call's image, however the model is entered, copied, threaded or recomputed."""

import copy
import threading

import pytest
import timm
import torch
from tests.plugins.timm.images import TALL, WIDE, images_of

import relbias as rb
from relbias.plugins.binding import bind, bound
from relbias.plugins.timm import attach, attn_layer, detach, resize


def entry(kind, model, images):
    if kind == "forward":
        return [model(images)]
    if kind == "forward_features":
        return [model.forward_features(images)]
    if kind == "forward_intermediates":
        final, between = model.forward_intermediates(images)
        return [final, *between]
    if kind == "stop early":
        return model.forward_intermediates(images, indices=[0], stop_early=True, intermediates_only=True)
    return list(model.get_intermediate_layers(images, n=2))


@pytest.mark.parametrize(
    "kind", ["forward", "forward_features", "forward_intermediates", "stop early", "get_intermediate_layers"]
)
@pytest.mark.parametrize("grid", [TALL, WIDE, (4, 4), (6, 6)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_way_in(make_vit, train, bias_mask, kind, grid, checkpointing):
    plain = make_vit(dynamic_img_size=True)
    attached = make_vit(dynamic_img_size=True)
    encoding = rb.create_encoding("table", 3, 64, rb.relations.Grid(6, 6, prefix_tokens=1))
    attach(attached, encoding)
    train(attached)
    attached.set_grad_checkpointing(checkpointing)
    mask = bias_mask(encoding.table, (6, 6), grid, 1)
    images = images_of(grid)
    if kind in ("forward", "forward_features"):
        wanted = [getattr(plain, kind)(images, attn_mask=mask)]
    else:
        final, between = plain.forward_intermediates(images, attn_mask=mask)
        wanted = {"stop early": between[:1], "forward_intermediates": [final, *between]}.get(kind, between)
        if kind == "get_intermediate_layers":
            wanted = [layer.flatten(2).mT for layer in between]
    torch.testing.assert_close(entry(kind, attached, images), wanted, rtol=1e-4, atol=1e-5)
    assert bound() is None


def test_the_two_grids_differ(model):
    """What the tests below would miss otherwise."""
    images = images_of(TALL)
    tokens = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(images))))
    as_tall = model.forward_features(images)
    with bind(WIDE):
        as_wide = model.norm(model.blocks(tokens))
    assert (as_tall - as_wide).abs().max() > 1e-2


def test_features_only(model):
    wrapper = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, depth=2, features_only=True, out_indices=(0, 1), dynamic_img_size=True
    ).eval()
    attach(wrapper, "table", grid=(6, 6))
    wrapper.model.load_state_dict({k: v for k, v in model.state_dict().items() if k in wrapper.model.state_dict()})
    for grid in (TALL, WIDE):
        wanted = model.forward_intermediates(images_of(grid), intermediates_only=True)
        torch.testing.assert_close(wrapper(images_of(grid)), wanted)
    detach(wrapper)


def test_two_threads_use_one_model(model):
    grids = (TALL, WIDE)
    with torch.no_grad():
        wanted = [model(images_of(grid)) for grid in grids]
    barrier = threading.Barrier(2, timeout=60)

    def wait(*_):
        barrier.wait()

    for block in model.blocks:  # each waits until both threads are in it
        block.register_forward_pre_hook(wait)
    found = {}

    def run(number):
        with torch.no_grad():
            found[number] = model(images_of(grids[number]))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(2):
        torch.testing.assert_close(found[number], wanted[number], rtol=0, atol=1e-6)


def test_deepcopy_is_independent(model):
    copied = copy.deepcopy(model)
    images = images_of(TALL)
    wanted = model(images)
    assert torch.equal(copied(images), wanted)
    with torch.no_grad():
        for block in copied.blocks:
            block.attn.encoding.table.zero_()
    assert (copied(images) - wanted).abs().max() > 1e-3
    detach(copied)
    assert torch.equal(model(images), wanted)


def test_nothing_stays_bound_after_an_error(model):
    model.blocks[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(images_of(TALL))
    assert bound() is None


def test_block_outside_of_a_forward(model):
    # 37 tokens are the table's own grid; of any other number the grid is unknown.
    assert model.blocks[0](torch.randn(1, 37, 192)).shape == (1, 37, 192)
    with pytest.raises(ValueError, match="25 tokens are not 1 prefix tokens and a grid of 6x6 patches; the grid is"):
        model.blocks[0](torch.randn(1, 25, 192))


def test_grid_larger_than_the_table(model):
    with pytest.raises(ValueError, match=r"7x4 grid has offsets .* `resize`"):
        model(images_of((7, 4)))


@pytest.mark.parametrize("encoding", ["shaw", "rope_axial"])
def test_encodings_without_size_take_any_grid(make_vit, train, encoding):
    model = make_vit(dynamic_img_size=True)
    attach(model, encoding)
    train(model)
    small, large = model(images_of((2, 3))), model(images_of((7, 5)))
    detach(model)
    attach(model, encoding, grid=(9, 9))
    train(model)
    assert torch.equal(model(images_of((2, 3))), small)
    assert torch.equal(model(images_of((7, 5))), large)


def test_set_input_size(make_vit, train, bias_mask):
    model = make_vit()
    encoding = rb.create_encoding("table", 3, 64, rb.relations.Grid(4, 4, prefix_tokens=1))
    attach(model, encoding)
    train(model)
    model.set_input_size(img_size=(48, 64))
    small = model(images_of((3, 4)))
    mask = bias_mask(encoding.table, (4, 4), (3, 4), 1)
    model.set_input_size(img_size=(96, 64))
    with pytest.raises(ValueError, match="`resize`"):
        model(images_of(TALL))
    resize(model, TALL)
    assert torch.isfinite(model(images_of(TALL))).all()
    model.set_input_size(img_size=(48, 64))
    assert model(images_of((3, 4))).shape == small.shape
    plain = make_vit()
    plain.set_input_size(img_size=(48, 64))
    torch.testing.assert_close(small, plain(images_of((3, 4)), attn_mask=mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["deit_tiny_distilled_patch16_224", "vit_tiny_patch16_224"])
def test_prefix_tokens(make_vit, train, bias_mask, name):
    model = make_vit(name, **({} if "deit" in name else {"reg_tokens": 3}))
    p = model.num_prefix_tokens
    assert p == (2 if "deit" in name else 4)
    encoding = rb.create_encoding("table", 3, 64, rb.relations.Grid(4, 4, prefix_tokens=p))
    attach(model, encoding)
    train(model)
    out = model(images_of((4, 4)))
    detach(model)
    wanted = model(images_of((4, 4)), attn_mask=bias_mask(encoding.table, (4, 4), (4, 4), p))
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)


def test_attn_layer_has_its_own_grid(bias_mask, make_vit):
    layer = attn_layer("table", grid=(4, 4), prefix_tokens=1)
    model = make_vit(attn_layer=layer, init_values=None)
    plain = make_vit()
    plain.load_state_dict(model.state_dict(), strict=False)
    tables = [block.attn.encoding.table for block in model.blocks]
    assert all(0.01 < table.std() < 0.03 for table in tables)
    images = images_of((4, 4))
    tokens = plain._pos_embed(plain.patch_embed(images))
    for block, table in zip(plain.blocks, tables, strict=True):
        tokens = block(tokens, attn_mask=bias_mask(table, (4, 4), (4, 4), 1))
    torch.testing.assert_close(model.forward_features(images), plain.norm(tokens), rtol=1e-4, atol=1e-5)
    assert torch.equal(copy.deepcopy(model)(images), model(images))
    with pytest.raises(ValueError, match="26 tokens are not 1 prefix tokens and a grid of 4x4"):
        model.blocks(torch.randn(1, 26, 192))
