"""Vision transformers whose patches are the features of a convolutional network, which rounds its sizes up."""

import copy

import pytest
import timm
import torch
from timm.layers import HybridEmbed
from torch import nn

import relbias as rb
from relbias.plugins.binding import bind, bound
from relbias.plugins.grids import SomePatches
from relbias.plugins.timm import attach, detach
from relbias.plugins.timm.image_grid import AttachedHybridEmbed

# Architecture, arguments, prefix tokens, image sizes that it takes, and the grids of those.
RESNET = ("vit_base_r26_s32_224", {"embed_dim": 64, "num_heads": 2}, 1)
STEM = ("vit_tiny_r_s16_p8_224", {"embed_dim": 96, "num_heads": 3}, 1)
VITAMIN = ("vitamin_small_224", {}, 0)
SIZES = [
    (RESNET, (96, 64), (3, 2)),
    (RESNET, (97, 150), (4, 5)),  # its embedding says 3 x 4
    (RESNET, (64, 96), (2, 3)),
    (STEM, (64, 96), (2, 3)),
    (STEM, (70, 130), (2, 4)),
    (VITAMIN, (64, 48), (4, 3)),
    (VITAMIN, (40, 70), (3, 5)),  # its embedding says 2 x 4
]


@pytest.fixture
def make_hybrid(make_vit):
    def make(kind, **arguments):
        name, own, _ = kind
        return make_vit(name, **{"img_size": (96, 64), "dynamic_img_size": True, **own, **arguments})

    return make


def images_of(size, batch=2):
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(("kind", "size", "grid"), SIZES, ids=str)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_grid_is_that_of_the_features(make_hybrid, train, bias_mask, kind, size, grid, checkpointing):
    plain, attached = make_hybrid(kind), make_hybrid(kind)
    attach(attached, "table", grid=(6, 7), shared=True)
    train(attached)
    table = attached.blocks[0].attn.encoding.table
    images = images_of(size)
    wanted = plain.forward_features(images, attn_mask=bias_mask(table, (6, 7), grid, kind[2]))
    attached.set_grad_checkpointing(checkpointing)
    torch.testing.assert_close(attached.forward_features(images), wanted, rtol=1e-4, atol=1e-5)
    assert bound() is None
    attention, x = attached.blocks[0].attn, torch.randn(1, kind[2] + grid[0] * grid[1], attached.embed_dim)
    with bind(grid):
        right = attention(x)
    with bind(grid[::-1]):
        assert (attention(x) - right).abs().max() > 1e-2  # what a grid of another shape would make


@pytest.mark.parametrize("kind", [RESNET, VITAMIN], ids=str)
@pytest.mark.parametrize("entry", ["forward", "forward_intermediates", "features_only"])
def test_exactly_unchanged_through_every_way_in(make_hybrid, train, kind, entry):
    model = make_hybrid(kind, dynamic_img_size=False)
    if entry == "features_only":
        arguments = {"img_size": (96, 64), "depth": 2, "features_only": True, "out_indices": (0, 1)}
        wrapper = timm.create_model(kind[0], **kind[1], **arguments).eval()
        wrapper.model.load_state_dict(model.state_dict(), strict=False)

        def run():
            return wrapper(images_of((96, 64)))

        model = wrapper
    elif entry == "forward":

        def run():
            return [model(images_of((96, 64)))]

    else:

        def run():
            return model.forward_intermediates(images_of((96, 64)), intermediates_only=True)

    with torch.no_grad():
        before = run()
        for encoding in ("table", "shaw", "rope_axial"):
            attach(model, encoding)
            assert all(torch.equal(a, b) for a, b in zip(run(), before, strict=True))
            train(model)
            assert (run()[-1] - before[-1]).abs().max() > 1e-3
            detach(model)
        assert all(torch.equal(a, b) for a, b in zip(run(), before, strict=True))


def test_two_sizes_and_one_backward_when_checkpointed(make_hybrid, train):
    model = make_hybrid(RESNET)
    attach(model, "table", grid=(6, 7))
    train(model)
    found = {}
    for checkpointing in (False, True):
        model.zero_grad()
        model.set_grad_checkpointing(checkpointing)
        sum(model(images_of(size)).square().sum() for size in ((97, 150), (150, 97))).backward()
        found[checkpointing] = model.blocks[0].attn.encoding.table.grad
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-5)


def test_a_grid_larger_than_the_table_names_resize(make_hybrid):
    model = make_hybrid(RESNET)
    attach(model, "table", grid=(3, 4))
    with pytest.raises(ValueError, match="resize"):
        model(images_of((97, 150)))
    rb.plugins.timm.resize(model, (4, 5))
    assert model(images_of((97, 150))).shape == (2, 5)


def test_set_input_size(make_hybrid):
    model = make_hybrid(VITAMIN, dynamic_img_size=False)
    attach(model, "table", grid=(6, 6))
    model.set_input_size((40, 70))
    assert model(images_of((40, 70))).shape == (2, 5)


def test_compile_and_export(make_hybrid, train):
    model = make_hybrid(STEM, depth=1, dynamic_img_size=False)
    attach(model, "table")
    train(model)
    images = images_of((96, 64))
    wanted = model(images)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), wanted, rtol=0, atol=1e-6)
    exported = torch.export.export(model, (images,), strict=False).module()
    torch.testing.assert_close(exported(images), wanted, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_every_hybrid_attaches_on_the_meta_device():
    names = [name for file in ("vision_transformer_hybrid", "vitamin") for name in timm.list_models(module=file)]
    assert len(names) >= 27
    for name in names:
        model = timm.create_model(name, depth=1, device="meta")
        attach(model, "table")
        relation = model.blocks[0].attn.encoding.relation
        images = torch.zeros(1, 3, *model.patch_embed.img_size, device="meta")
        assert relation.height * relation.width == model.patch_embed(images).shape[1]


class TwoMaps(nn.Module):
    """A backbone with two feature maps, the last coarser by 8 than the image."""

    def __init__(self):
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(4, 6, 2, stride=2)

    def forward(self, x):
        fine = self.fine(x)
        return [fine, self.coarse(fine)]


def test_several_maps_padded_to_patches_that_are_not_square():
    plain = HybridEmbed(TwoMaps(), img_size=(48, 72), patch_size=(2, 3), embed_dim=8, dynamic_img_pad=True)
    attached = copy.deepcopy(plain)
    attached.__class__ = AttachedHybridEmbed
    images = images_of((56, 56))  # maps of 7 x 7, which lack a row and two columns
    grid = SomePatches(1, 1)
    with bind(grid):
        out = attached(images)
    assert torch.equal(out, plain(images))
    assert (grid.height, grid.width) == (4, 3)
