"""NaFlexVit: one image, or patches of images of several sizes in one batch."""

import pytest
import timm
import torch

import relbias as rb
from relbias.plugins.timm import attach, detach, resize, settings

NAME = "naflexvit_base_patch16_gap"
GRIDS = ((3, 4), (2, 5))
"""Of two images in a batch, whose patches are padded to 12."""


@pytest.fixture
def make(make_vit):
    def build(name=NAME, **arguments):
        arguments = {"embed_dim": 64, "num_heads": 2, "depth": 2, "img_size": None} | arguments
        return make_vit(name, **arguments)

    return build


@pytest.fixture
def batch():
    """What timm's collator gives: patches, their (y, x) in any order, and which are no padding."""
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(2, 12, 16 * 16 * 3, generator=generator)
    places, valid = torch.zeros(2, 12, 2, dtype=torch.long), torch.zeros(2, 12, dtype=torch.bool)
    for item, (height, width) in enumerate(GRIDS):
        order = torch.randperm(height * width, generator=generator)
        places[item, : height * width] = torch.stack((order // width, order % width), dim=-1)
        valid[item, : height * width] = True
    return {"patches": patches, "patch_coord": places, "patch_valid": valid}


@pytest.fixture
def attached(make, train):
    model = make()
    encoding = rb.create_encoding("table", 2, 32, rb.relations.Grid(4, 5, prefix_tokens=model.num_prefix_tokens))
    attach(model, encoding)
    train(model)
    return model


def expected_mask(model, batch, bias_mask):
    """The bias of every pair by its places, and the padding hidden as timm hides it."""
    p, places, valid = model.num_prefix_tokens, batch["patch_coord"], batch["patch_valid"]
    whole = bias_mask(model.blocks[0].attn.encoding.table, (4, 5), (4, 5), p)[0]
    tokens = torch.cat((torch.arange(p).expand(2, p), p + places[..., 0] * 5 + places[..., 1]), dim=1)
    bias = torch.stack([whole[:, item][:, :, item] for item in tokens])
    valid = torch.nn.functional.pad(valid, (p, 0), value=True)
    both = valid[:, None, :, None] & valid[:, None, None, :]
    return bias + torch.zeros(both.shape).masked_fill_(~both, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_images_of_several_sizes_in_a_batch(make, attached, batch, bias_mask, checkpointing):
    plain = make()
    mask = expected_mask(attached, batch, bias_mask)
    wanted = plain({**batch, "attn_mask": mask})
    attached.set_grad_checkpointing(checkpointing)
    out = attached(dict(batch))
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
    assert (plain(dict(batch)) - wanted).abs().max() > 1e-3
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (table,) = {block.attn.encoding.table for block in attached.blocks}
    wanted.backward(cotangent)
    out.backward(cotangent)
    assert table.grad.abs().max() > 1e-3
    weight = "blocks.0.attn.qkv.weight"
    scale = plain.get_parameter(weight).grad.abs().max()
    torch.testing.assert_close(
        attached.get_parameter(weight).grad, plain.get_parameter(weight).grad, rtol=0, atol=float(1e-4 * scale)
    )


def test_other_ways_in(make, attached, batch, bias_mask):
    plain, mask = make(), expected_mask(attached, batch, bias_mask)
    wanted = plain({**batch, "attn_mask": mask})
    patches, places, valid = batch["patches"], batch["patch_coord"], batch["patch_valid"]
    torch.testing.assert_close(attached(patches, places, valid), wanted, rtol=1e-4, atol=1e-5)
    arguments = {"output_fmt": "NLC", "output_dict": True}
    between = plain.forward_intermediates({**batch, "attn_mask": mask}, **arguments)["image_intermediates"]
    for given in ((dict(batch),), (patches,)):
        more = {} if isinstance(given[0], dict) else {"patch_coord": places, "patch_valid": valid}
        found = attached.forward_intermediates(*given, **more, **arguments)["image_intermediates"]
        torch.testing.assert_close(found, between, rtol=1e-4, atol=1e-5)


def test_an_image_is_its_patches(attached):
    image = torch.randn(1, 3, 64, 48, generator=torch.Generator().manual_seed(1))
    patches = image.view(1, 3, 4, 16, 3, 16).permute(0, 2, 4, 3, 5, 1).reshape(1, 12, -1)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(3))[None]
    packed = attached(patches, places, torch.ones(1, 12, dtype=torch.bool))
    torch.testing.assert_close(attached(image), packed, rtol=1e-4, atol=1e-5)


def test_patch_dropout_among_given_patches(make, train, batch, bias_mask):
    plain, model = (make(patch_drop_rate=0.5).train() for _ in range(2))
    encoding = rb.create_encoding("table", 2, 32, rb.relations.Grid(4, 5, prefix_tokens=model.num_prefix_tokens))
    attach(model, encoding)
    train(model)
    whole = expected_mask(model, batch, bias_mask)
    torch.manual_seed(3)
    kept = torch.argsort(torch.randn(2, 12), dim=-1)[:, :6]
    p = plain.num_prefix_tokens
    tokens = torch.cat((torch.arange(p).expand(2, p), p + kept), dim=1)
    mask = torch.stack([mask[:, item][:, :, item] for mask, item in zip(whole, tokens, strict=True)])
    torch.manual_seed(3)
    wanted = plain.forward_features(**batch, attn_mask=mask)["patches"]
    torch.manual_seed(3)
    found = model.forward_features(**batch)["patches"]
    left = batch["patch_valid"].gather(1, kept)  # what timm computes for padding is thrown away
    torch.testing.assert_close(found[:, -6:][left], wanted[:, -6:][left], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["table", "irpe", "swin_v2", "shaw", "alibi", "rope_axial", "rope_mixed"])
@pytest.mark.parametrize("fused", [True, False])
def test_start(make, batch, name, fused):
    model = make()
    for block in model.blocks:
        block.attn.fused_attn = fused
    image = torch.randn(2, 3, 64, 48, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = [model(image), model(dict(batch))]
        attach(model, name, grid=(4, 5))
        found = [model(image), model(dict(batch))]
    for out, before in zip(found, wanted, strict=True):
        assert torch.equal(out, before)
    out = model(dict(batch))
    out.square().sum().backward()
    for block in model.blocks:
        assert any(p.grad is not None and p.grad.abs().max() > 0 for p in block.attn.encoding.parameters())
    detach(model)
    assert torch.equal(model(image), wanted[0])


def test_a_larger_image_names_resize(attached, batch):
    batch["patch_coord"][0, 0, 0] = 6
    with pytest.raises(ValueError, match=r"a 7x5 grid has offsets that .* `resize`"):
        attached(dict(batch))
    resize(attached, (7, 5))
    assert attached(dict(batch)).isfinite().all()


def test_settings_and_the_model_s_own_grid(make):
    model = make()
    attach(model, "table")
    assert model.embeds.pos_embed_grid_size == (16, 16)
    assert settings(model)["grid"] == [24, 24]  # its images have 384 x 384 pixels


@pytest.mark.slow
@pytest.mark.parametrize("name", timm.list_models(module="naflexvit"))
def test_every_architecture_starts_unchanged(make_vit, batch, name):
    with torch.device("meta"):
        attach(timm.create_model(name), "table")
    if "huge" in name or "giant" in name:
        return
    model = make_vit(name, depth=2, img_size=None)
    with torch.no_grad():
        wanted = model(dict(batch))
        attach(model, "table")
        assert torch.equal(model(dict(batch)), wanted)
