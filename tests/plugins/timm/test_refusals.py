"""What cannot be attached is refused in one line and leaves the model as it was."""

import pytest
import timm
import torch
from torch import nn

import relbias as rb
from relbias.plugins.timm import attach, attn_layer, detach, resize, settings


def snapshot(model):
    return (
        [type(module) for module in model.modules()],
        {key: value.clone() for key, value in model.state_dict().items()},
        {key for module in model.modules() for key in vars(module)},
    )


def same(a, b):
    return (
        a[0] == b[0]
        and a[2] == b[2]
        and a[1].keys() == b[1].keys()
        and all(torch.equal(a[1][k], b[1][k]) for k in a[1])
    )


def built(prefix_tokens=1, heads=3, name="table", **options):
    return rb.create_encoding(name, heads, 64, rb.relations.Grid(4, 4, prefix_tokens=prefix_tokens), **options)


class FailsInLaterLayers:
    def __init__(self):
        self.layers = 0

    def __call__(self, num_heads, head_dim, relation):
        self.layers += 1
        if self.layers > 1:
            raise ValueError("no more")
        return rb.encodings.Table(num_heads, head_dim, relation)


class NeverCalled(rb.encodings.Table):
    def forward(self, index, *, x=None, attention=None):
        raise ValueError("not here")


@pytest.mark.parametrize(
    ("encoding", "options", "message"),
    [
        ("t5", {}, "'t5' takes the relation Sequence, got Grid"),
        ("alibi", {"variant": "causal"}, "a grid has no order"),
        ("rope", {}, "'rope' takes the relation Sequence"),
        ("learned", {}, "'learned' is applied at the input"),
        ("sinusoidal", {}, "'sinusoidal' is applied at the input"),
        ("tabel", {}, "did you mean 'table'"),
        ("shaw", {"max_distanze": 3}, "did you mean 'max_distance'"),
        ({"a": "table", "b": "rope"}, {}, "'rope' takes the relation Sequence"),
        (FailsInLaterLayers(), {}, "no more"),
        (built(prefix_tokens=2), {}, r"built over Grid\(.*prefix_tokens=2.*needs one like Grid\(.*prefix_tokens=1"),
        (built(heads=2), {}, "built for 2 heads"),
        (built(), {"max_distance": 2}, "already built"),
        (NeverCalled(3, 64, rb.relations.Grid(4, 4, prefix_tokens=1)), {}, "not here"),  # found once it is at zero
        (
            rb.create_encoding("t5", 3, 64),
            {},
            r"built over Sequence\(.*\), this model needs one like Grid",
        ),
        ("table", {"grid": (4, 4, 4)}, r"grid is \(height, width\)"),
        ("table", {"grid": (0, 4)}, "height must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_refused_encodings_change_nothing(make_vit, encoding, options, message):
    model = make_vit()
    before = snapshot(model)
    weights = [p.clone() for p in encoding.parameters()] if isinstance(encoding, nn.Module) else []
    with pytest.raises(ValueError, match=message):
        attach(model, encoding, **options)
    assert same(snapshot(model), before)
    for kept, parameter in zip(weights, encoding.parameters() if weights else [], strict=True):
        assert torch.equal(kept, parameter)
    attach(model, "table")


def test_attach_twice_and_detach_without_attach(make_vit):
    model = make_vit()
    for call in (detach, settings, lambda m: resize(m, (4, 4))):
        with pytest.raises(ValueError, match="VisionTransformer has no encoding attached; call attach"):
            call(model)
    attach(model, "table")
    before = snapshot(model)
    with pytest.raises(ValueError, match="VisionTransformer has an encoding attached; call detach"):
        attach(model, "shaw")
    assert same(snapshot(model), before)
    detach(model)
    with pytest.raises(ValueError, match="no encoding attached"):
        detach(model)


def small(name, **arguments):
    return timm.create_model(name, depth=1, embed_dim=64, num_heads=2, **arguments)


class OwnAttention(timm.layers.Attention):
    pass


class OwnTransformer(timm.models.vision_transformer.VisionTransformer):
    pass


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (
            lambda: timm.create_model("resnet10t"),
            "resnet10t is not supported: it has no attention over tokens; the nearest supported model is '",
        ),
        (
            lambda: timm.create_model("mixer_s32_224"),
            r"mixer_s32.* nearest supported model is '",
        ),
        (
            lambda: small("vit_tiny_patch16_224", attn_layer=OwnAttention),
            "attend by OwnAttention, not by timm's Attention; the nearest supported model is 'vit_tiny_patch16_224'",
        ),
        (lambda: OwnTransformer(depth=1, embed_dim=64, num_heads=2), "OwnTransformer is not supported: its class"),
        (lambda: nn.ModuleList([small("vit_tiny_patch16_224") for _ in range(2)]), "2 models inside"),
        (lambda: nn.Linear(2, 2), "Linear is not supported"),
        (
            lambda: timm.create_model("vit_tiny_patch16_224", depth=1, attn_layer=attn_layer("table", grid=(14, 14))),
            "created with relative attention",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_refused_models_stay_as_they_were(create, message):
    model = create()
    before = snapshot(model)
    with pytest.raises(ValueError, match=message):
        attach(model, "table")
    assert same(snapshot(model), before)


def test_attn_layer_refusals():
    with pytest.raises(ValueError, match="height must be"):
        attn_layer("table", grid=(0, 4))
    for encoding, message in (("tabel", "did you mean 'table'"), ("learned", "'learned' is applied at the input")):
        layer = attn_layer(encoding, grid=(4, 4))
        with pytest.raises(ValueError, match=message):
            timm.create_model("vit_tiny_patch16_224", depth=1, attn_layer=layer)


@pytest.mark.parametrize("grid", [4, (4,), (4, 0), (4.0, 4)])
def test_a_grid_is_two_positive_integers(make_vit, grid):
    model = make_vit()
    with pytest.raises(ValueError, match="grid"):
        rb.plugins.timm.attach(model, "table", grid=grid)
    with pytest.raises(ValueError, match="grid"):
        rb.plugins.timm.attn_layer("table", grid=grid)
    rb.plugins.timm.attach(model, "table")
    with pytest.raises(ValueError, match="grid"):
        rb.plugins.timm.resize(model, grid)


def test_messages_for_what_is_no_model_or_has_no_place():
    with pytest.raises(ValueError, match="expected a model, got a str"):
        attach("vit_tiny_patch16_224", "table")
    swin = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1), embed_dim=24)
    with pytest.raises(ValueError, match=r"'cpe' is applied to the tokens .* no place in swin_tiny_patch4_window7_224"):
        attach(swin, "cpe")
    with pytest.raises(ValueError, match=r"^swin_tiny_patch4_window7_224 has no absolute positions to drop"):
        attach(swin, "table", drop_positions=True)
