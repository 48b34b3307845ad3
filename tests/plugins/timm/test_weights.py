"""Checkpoints, averaged copies, empty and pruned models, and other classifiers, with an encoding attached."""

import copy

import pytest
import safetensors.torch
import timm
import torch
from tests.plugins.timm.images import TALL, WIDE, images_of
from timm.models import load_checkpoint
from timm.utils import ModelEmaV3

import relbias as rb
from relbias.plugins.timm import attach, detach, settings

ENCODINGS = ["table", "swin_v2", "irpe", "rope_axial", {"a": "cpe", "b": "table"}]


@pytest.fixture
def pair(make_vit, train):
    """Builds a trained model and a fresh one attached by the settings of the first."""

    def make(encoding, **arguments):
        model, fresh = make_vit(**arguments), make_vit(**arguments)
        attach(model, encoding)
        train(model)
        attach(fresh, **settings(model))
        assert not torch.equal(fresh(images_of((4, 4))), model(images_of((4, 4))))
        return model, fresh

    return make


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_checkpoints(pair, tmp_path, encoding):
    model, fresh = pair(encoding)
    wanted = model(images_of((4, 4)))
    safetensors.torch.save_model(model, str(tmp_path / "model.safetensors"))
    safetensors.torch.load_model(fresh, str(tmp_path / "model.safetensors"), strict=True)
    assert torch.equal(fresh(images_of((4, 4))), wanted)
    fresh = pair(encoding)[1]
    torch.save({"state_dict": model.state_dict()}, tmp_path / "model.pth")
    load_checkpoint(fresh, str(tmp_path / "model.pth"), strict=True)
    assert torch.equal(fresh(images_of((4, 4))), wanted)


def test_shared_encodings_in_safetensors(make_vit, train, tmp_path):
    model, fresh = make_vit(), make_vit()
    attach(model, "table", shared=True)
    train(model)
    attach(fresh, **settings(model))
    safetensors.torch.save_model(model, str(tmp_path / "model.safetensors"))
    safetensors.torch.load_model(fresh, str(tmp_path / "model.safetensors"), strict=True)
    assert torch.equal(fresh(images_of((4, 4))), model(images_of((4, 4))))


def test_checkpoint_path_of_create_model(make_vit, tmp_path):
    """Weights are loaded by timm before the encoding is attached."""
    model = make_vit()
    torch.save(model.state_dict(), tmp_path / "model.pth")
    loaded = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, depth=2, num_classes=5, checkpoint_path=str(tmp_path / "model.pth")
    ).eval()
    attach(loaded, "table")
    with torch.no_grad():
        assert torch.equal(loaded(images_of((4, 4))), model(images_of((4, 4))))


def test_moving_average(make_vit, train):
    model = make_vit(dynamic_img_size=True)
    attach(model, "table", grid=(6, 6), drop_positions=True)
    average = ModelEmaV3(model, decay=0.5)
    train(model)
    table = model.blocks[1].attn.encoding.table
    average.update(model, step=2)
    torch.testing.assert_close(average.module.blocks[1].attn.encoding.table, 0.5 * table)
    for grid in (TALL, WIDE):
        average.set(model)
        assert torch.equal(average.module(images_of(grid)), model(images_of(grid)))
    detach(average.module)
    assert any(isinstance(module, rb.Encoding) for module in model.modules())


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_meta_device(make_vit, train, encoding):
    model = make_vit()
    attach(model, encoding)
    train(model)
    with torch.device("meta"):
        empty = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2, num_classes=5).eval()
    attach(empty, **settings(model))
    assert all(parameter.is_meta for parameter in empty.parameters())
    empty.to_empty(device="cpu")
    for parameter in empty.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    drawn = copy.deepcopy(empty)
    drawn.init_weights()
    assert torch.isfinite(drawn(images_of((4, 4)))).all()
    empty.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(empty(images_of((4, 4))), model(images_of((4, 4))))


def test_prune_intermediate_layers(make_vit, train):
    model = make_vit(depth=3, dynamic_img_size=True)
    attach(model, {"a": "cpe", "b": "table"}, grid=(6, 6))
    train(model)
    wanted = [model.forward_intermediates(images_of(grid), intermediates_only=True)[1] for grid in (TALL, WIDE)]
    last = model.prune_intermediate_layers([1], prune_norm=True, prune_head=True)
    assert len(model.blocks) == 2
    for grid, between in zip((TALL, WIDE), wanted, strict=True):
        assert torch.equal(model.forward_intermediates(images_of(grid), last, intermediates_only=True)[0], between)
    assert len(rb.plugins.engine.encodings(model)) == 3
    detach(model)
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())


def test_reset_classifier(make_vit, train):
    model = make_vit()
    attach(model, "table")
    train(model)
    features = model.forward_head(model.forward_features(images_of((4, 4))), pre_logits=True)
    model.reset_classifier(7)
    torch.testing.assert_close(model(images_of((4, 4))), model.head(features))
    assert model.get_classifier().out_features == 7
    model.reset_classifier(0)
    torch.testing.assert_close(model(images_of((4, 4))), features)
