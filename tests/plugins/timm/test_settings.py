"""Settings and weights rebuild a model; the names of those supported."""

import io
import json

import pytest
import torch
from torch import nn

import relbias as rb
from relbias.plugins.timm import attach, detach, list_models, resize, settings


def images_of(height, width):
    return torch.randn(1, 3, 16 * height, 16 * width, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("table", {}),
        ("shaw", {"max_distance": 2}),
        ("rope_axial", {"base": 50.0}),
        ({"a": "table", "b": "rope_axial"}, {}),
        (rb.encodings.Table, {"strength": 0.5}),
    ],
    ids=str,
)
def test_settings_and_weights_rebuild_a_model(make_vit, train, encoding, options):
    model = make_vit()
    attach(model, encoding, **options)
    train(model)
    written = json.dumps(settings(model))
    fresh = make_vit()
    attach(fresh, **json.loads(written))
    assert settings(fresh) == settings(model)
    with torch.no_grad():
        assert (fresh(images_of(4, 4)) - model(images_of(4, 4))).abs().max() > 1e-3
        fresh.load_state_dict(model.state_dict(), strict=True)
        assert torch.equal(fresh(images_of(4, 4)), model(images_of(4, 4)))


def test_settings_after_resize_rebuild_a_model(make_vit, train):
    model = make_vit(dynamic_img_size=True)
    attach(model, "table")
    train(model)
    resize(model, (6, 5))
    assert settings(model) == {"encoding": "table", "grid": [6, 5]}
    fresh = make_vit(dynamic_img_size=True)
    attach(fresh, **settings(model))
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(images_of(6, 5)), model(images_of(6, 5)))


def test_settings_are_a_copy(make_vit):
    model = make_vit()
    attach(model, "table")
    settings(model)["grid"].append(1)
    assert settings(model)["grid"] == [4, 4]


def test_checkpoint_without_the_plugin(make_vit):
    model, plain = make_vit(), make_vit()
    attach(model, "table")
    with pytest.raises(RuntimeError, match=r"Missing key.* \"blocks\.0\.attn\.encoding\.table\""):
        model.load_state_dict(plain.state_dict())


def test_whole_model_can_be_saved(make_vit, train):
    model = make_vit()
    attach(model, "table")
    train(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(images_of(4, 4)), model(images_of(4, 4)))
    detach(loaded)


def test_settings_of_an_object_are_refused(make_vit):
    model = make_vit()
    attach(model, rb.create_encoding("table", 3, 64, rb.relations.Grid(4, 4, prefix_tokens=1)))
    with pytest.raises(ValueError, match="cannot be written down; attach one by name"):
        settings(model)


def test_model_inside_another(make_vit):
    model = nn.Sequential(make_vit(), nn.Softmax(-1))
    attach(model, "table")
    assert settings(model) == settings(model[0]) == {"encoding": "table", "grid": [4, 4]}
    detach(model)


def test_list_models():
    names = list_models()
    assert {"vit_small_patch16_224", "deit_tiny_distilled_patch16_224", "vit_base_patch16_siglip_224"} <= set(names)
    assert not {"resnet50", "mobilevitv2_050", "xcit_tiny_12_p8_224"} & set(names)
    assert list_models("deit3_s*") == ["deit3_small_patch16_224", "deit3_small_patch16_384"]
    assert list_models("resnet*") == []


def test_layers_that_are_alike_may_share_an_encoding(make_vit):
    model = make_vit()
    attach(model, "table", shared=True)
    assert model.blocks[0].attn.encoding is model.blocks[1].attn.encoding
    written = settings(model)
    assert written == {"encoding": "table", "grid": [4, 4], "shared": True}
    fresh = make_vit()
    attach(fresh, **written)
    fresh.load_state_dict(model.state_dict())
    resize(fresh, (6, 6))
    assert fresh.blocks[0].attn.encoding is fresh.blocks[1].attn.encoding
    detach(fresh)
    fresh.load_state_dict(make_vit().state_dict())


def test_a_start_from_scratch_is_in_the_settings(make_vit):
    model = make_vit()
    attach(model, "swin_v2", zero_start=False)
    encoding = model.blocks[0].attn.encoding
    assert encoding.strength is None
    written = settings(model)
    assert written == {"encoding": "swin_v2", "grid": [4, 4], "zero_start": False}
    fresh = make_vit()
    attach(fresh, **written)
    fresh.load_state_dict(model.state_dict())
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fresh(images), model(images))
    assert (make_vit()(images) - model(images)).abs().max() > 1e-4
