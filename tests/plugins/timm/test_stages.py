"""Models with several grids: stages, branches, patches whose pixels attend, and what timm leaves for their features."""

import copy
from types import SimpleNamespace

import pytest
import timm
import torch
from timm.models.mobilevit import MobileVitBlock
from torch import nn

from relbias.plugins.binding import bound
from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, resize, settings

PIT = {"depth": (1, 1, 1), "img_size": (48, 64)}
MODELS = {
    # Architecture, arguments, image, and the grid and prefix tokens of each layer in the order of the calls.
    "pit": ("pit_ti_224", PIT, (48, 64), [((5, 7), 1), ((3, 4), 1), ((2, 2), 1)]),
    "pit distilled": ("pit_ti_distilled_224", PIT, (48, 64), [((5, 7), 2), ((3, 4), 2), ((2, 2), 2)]),
    "crossvit": (
        "crossvit_tiny_240",
        {"depth": [[1, 2, 1], [1, 1, 0]], "img_size": (240, 120)},
        (240, 120),
        [((20, 10), 1), ((14, 7), 1), ((14, 7), 1), ((20, 10), 1), ((14, 7), 1)],
    ),
    "mobilevit": (
        "mobilevit_xxs",
        {},
        (96, 160),  # the last map is of 3 x 5, which patches of 2 x 2 do not divide
        [((6, 10), 0)] * 2 + [((3, 5), 0)] * 4 + [((2, 3), 0)] * 3,
    ),
    "csatv2": (
        "csatv2",
        {"depths": (1, 1, 2, 2), "transformer_depths": (0, 0, 1, 2)},
        (128, 192),
        [((4, 6), 0)] + [((2, 3), 0)] * 2,
    ),
}
GIVEN = {"mobilevit": {"grid": (6, 10)}, "csatv2": {"grid": (4, 6)}}  # they know no size of images but the trained one
GAINS = {"pit": 1.0, "crossvit": 4.0, "mobilevit": 20.0, "csatv2": 4.0}  # they start the weights of q, k, v differently
ENCODINGS = ("table", "shaw", "rope_axial", "rope_mixed", "alibi", "irpe", "swin_v2", {"a": "table", "b": "rope_axial"})


@pytest.fixture(params=MODELS)
def kind(request):
    return request.param


@pytest.fixture
def make(lively):
    """Builds a model of a kind, in which attention matters to the output."""

    def build(kind, **arguments):
        torch.manual_seed(0)
        name, own, _, _ = MODELS[kind]
        return lively(timm.create_model(name, num_classes=5, **{**own, **arguments}).eval(), GAINS[kind.split()[0]])

    return build


def images_of(kind, batch=2, size=None):
    return torch.randn(batch, 3, *(size or MODELS[kind][2]), generator=torch.Generator().manual_seed(2))


def out_of(model, images):
    """The output as one tensor."""
    out = model(images)
    return torch.cat([part.flatten() for part in out]) if isinstance(out, (list, tuple)) else out


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_exactly_unchanged_until_moved_and_after_detach(make, train, kind, encoding):
    model, images = make(kind), images_of(kind)
    keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
    for fused in (True, False):
        for module in model.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = fused
        with torch.no_grad():
            before = model(images)
            attach(model, encoding, **GIVEN.get(kind, {}))
            assert set(keys) < set(model.state_dict())
            assert (model(images) - before).abs().max() == 0.0
            train(model)
            assert (model(images) - before).abs().max() > 1e-3 * before.abs().max()
            detach(model)
            assert (model(images) - before).abs().max() == 0.0
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == classes


@pytest.mark.parametrize("encoding", ["table", "rope_axial"])
def test_first_step_moves_every_layer(make, kind, encoding):
    model, images = make(kind), images_of(kind)
    before = model(images)
    attach(model, encoding, **GIVEN.get(kind, {}))
    out = model(images)
    assert (out - before).abs().max() <= 1e-6 * max(1.0, float(before.detach().abs().max()))
    out.square().sum().backward()
    assert len(encodings(model)) == len(MODELS[kind][3])
    for layer in encodings(model):
        assert any(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


def test_every_layer_has_the_bias_of_its_own_grid(make, train, bias_mask, monkeypatch, kind):
    model, plain, images = make(kind), make(kind), images_of(kind)
    layers = MODELS[kind][3]
    attach(model, "table", **GIVEN.get(kind, {}))
    train(model)
    tables = iter([(e.table, (e.relation.height, e.relation.width)) for e in encodings(model)])

    calls = iter(layers)
    fused = torch.nn.functional.scaled_dot_product_attention

    def with_bias(q, k, v, attn_mask=None, **arguments):
        table, grid = next(tables)
        wanted, prefix_tokens = next(calls)
        assert grid == wanted
        return fused(q, k, v, attn_mask=bias_mask(table, grid, wanted, prefix_tokens), **arguments)

    with torch.no_grad():
        found = model(images)
        assert bound() is None
        functions = SimpleNamespace(scaled_dot_product_attention=with_bias)
        monkeypatch.setattr("timm.layers.attention.F", functions)
        torch.testing.assert_close(found, plain(images), rtol=1e-4, atol=1e-5)
    assert next(calls, None) is None


def test_settings_and_weights_rebuild_a_model(make, train, kind):
    model, images = make(kind), images_of(kind)
    attach(model, "table", shared=True, **GIVEN.get(kind, {}))
    train(model)
    fresh = make(kind)
    attach(fresh, **settings(model))
    fresh.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        assert torch.equal(fresh(images), model(images))
    copied = copy.deepcopy(model)
    detach(copied)
    assert torch.equal(copied(images), make(kind)(images))


def test_encodings_are_not_decayed(make, kind):
    model = make(kind)
    attach(model, "table", **GIVEN.get(kind, {}))
    assert {name for name, _ in model.named_parameters() if "encoding" in name} <= set(model.no_weight_decay())


@pytest.mark.parametrize("kind", ["pit", "crossvit"])
def test_own_positions_may_be_dropped(make, kind):
    model, plain, images = make(kind), make(kind), images_of(kind)
    names = [name for name, _ in plain.named_parameters() if name.startswith("pos_embed")]
    attach(model, "table", drop_positions=True)
    with torch.no_grad():
        before = plain(images)
        for name in names:
            getattr(plain, name).zero_()
        assert torch.equal(model(images), plain(images))
        wanted = plain.forward_intermediates(images, intermediates_only=True)
        found = model.forward_intermediates(images, intermediates_only=True)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        detach(model)
        assert torch.equal(model(images), before)
        assert (plain(images) - before).abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["mobilevit", "csatv2"])
def test_two_sizes_and_one_backward_when_checkpointed(make, train, kind):
    model = make(kind)
    sizes = ((96, 160), (192, 64)) if kind == "mobilevit" else ((128, 192), (192, 128))
    attach(model, "table", grid=(12, 12))
    train(model)
    found = {}
    for checkpointing in (False, True):
        model.zero_grad()
        model.set_grad_checkpointing(checkpointing)
        sum(model(images_of(kind, size=size)).square().sum() for size in sizes).backward()
        found[checkpointing] = {name: p.grad for name, p in model.named_parameters() if "encoding" in name}
    torch.testing.assert_close(found[True], found[False], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["mobilevit", "csatv2"])
def test_a_larger_image_names_resize(make, train, kind):
    model = make(kind)
    attach(model, "table", **GIVEN[kind])
    train(model)
    small, large = images_of(kind), images_of(kind, size=(256, 256))
    before = model(small)
    with pytest.raises(ValueError, match="resize"):
        model(large)
    assert bound() is None
    resize(model, (16, 16))
    assert torch.equal(model(small), before)
    assert torch.isfinite(model(large)).all()


def test_features_and_intermediates(make, train, kind):
    name, own, _, _ = MODELS[kind]
    torch.manual_seed(0)
    indices = (0, 1) if kind in ("crossvit", "pit", "pit distilled") else (2, 3)
    features = timm.create_model(name, features_only=True, out_indices=indices, **own).eval()
    images = images_of(kind)
    with torch.no_grad():
        before = out_of(features, images)
        attach(features, "table", **GIVEN.get(kind, {}))
        assert torch.equal(out_of(features, images), before)
        train(features)
        assert (out_of(features, images) - before).abs().max() > 1e-4
        detach(features)
        assert torch.equal(out_of(features, images), before)
        model = make(kind)
        if hasattr(model, "forward_intermediates"):
            before = model.forward_intermediates(images, intermediates_only=True)
            attach(model, "table", **GIVEN.get(kind, {}))
            after = model.forward_intermediates(images, intermediates_only=True)
            assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
            train(model)
            after = model.forward_intermediates(images, intermediates_only=True)
            assert (after[-1] - before[-1]).abs().max() > 1e-4


@pytest.mark.parametrize(
    "kind", ["pit", *(pytest.param(kind, marks=pytest.mark.slow) for kind in MODELS if kind != "pit")]
)
def test_compile_and_export(make, train, kind):
    model, images = make(kind), images_of(kind)
    attach(model, "table", **GIVEN.get(kind, {}))
    train(model)
    wanted = model(images)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), wanted, rtol=1e-5, atol=1e-5)
    exported = torch.export.export(model, (images,), strict=False).module()
    torch.testing.assert_close(exported(images), wanted, rtol=1e-5, atol=1e-5)


def test_autocast_and_meta(make, train, kind):
    model, images = make(kind), images_of(kind)
    attach(model, "table", **GIVEN.get(kind, {}))
    train(model)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert torch.isfinite(model(images)).all()
    assert model.to("meta")(images.to("meta")).shape == (2, 5)


def test_tokens_of_mobilevit_are_the_patches_row_by_row():
    block = MobileVitBlock(4, transformer_dim=4, num_heads=1, transformer_depth=1)
    block.patch_size, block.patch_area = (2, 3), 6
    block.conv_kxk, block.conv_1x1 = nn.Identity(), nn.Identity()
    seen = []
    block.transformer.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    patches = torch.arange(4 * 5.0).view(4, 5)  # the number of each patch, row by row
    block(patches.repeat_interleave(2, 0).repeat_interleave(3, 1).expand(1, 4, 8, 15))
    assert torch.equal(seen[0], patches.view(1, 20, 1).expand(6, 20, 4))


def test_a_grid_of_another_size_gives_each_branch_its_share(make):
    model = make("crossvit")
    attach(model, "table", grid=(40, 11))
    found = [(e.relation.height, e.relation.width) for e in encodings(model)]
    assert found == [(40, 11), (28, 8), (28, 8), (40, 11), (28, 8)]
    assert torch.isfinite(model(images_of("crossvit"))).all()


def test_mobilevit_without_the_last_strides():
    model = timm.create_model("mobilevit_xxs", output_stride=16).eval()
    attach(model, "table", grid=(6, 6))
    assert [e.relation.height for e in encodings(model)] == [6, 6, 3, 3, 3, 3, 3, 3, 3]
    assert model(torch.randn(1, 3, 96, 96)).shape == (1, 1000)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mobilevitv2_050", {}, "its attention is linear: the weight of a key is the same for every query.*'mobilevit"),
        ("csatv2", {"features_only": True, "out_indices": (0, 1)}, "csatv2 is not supported: it has no attention over"),
        ("csatv2", {"transformer_depths": (0, 0, 0, 0)}, "csatv2 is not supported: it has no attention over tokens"),
        ("resnet10t", {"features_only": True}, "resnet10t is not supported: it has no attention over tokens"),
        ("repvgg_a0", {}, "repvgg_a0 is not supported: it has no attention over tokens"),
        ("botnet26t_256", {}, "its attention has relative positions of its own, for maps of one size"),
        ("cait_xxs24_224", {}, "cait_xxs24_224 is not supported: its heads talk to each other"),
        ("xcit_nano_12_p16_224", {}, "it attends between channels, not between tokens"),  # and has a layer of cait's
    ],
)
def test_refusals(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        attach(timm.create_model(name, **arguments), "table")
