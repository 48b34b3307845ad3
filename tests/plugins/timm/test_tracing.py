"""Ways of tracing that record a call of one size are refused by name, and leave the model as it was."""

import pytest
import timm
import torch
from timm.models import create_feature_extractor
from timm.utils import AttentionExtract
from torchvision.models.feature_extraction import create_feature_extractor as torchvision_extractor

import relbias as rb
from relbias.plugins.timm import attach

WAYS = {
    "fx": (torch.fx.symbolic_trace, "torch.fx cannot trace an attached model"),
    "features of timm": (lambda model: create_feature_extractor(model, ["blocks.0"]), "forward_intermediates for fea"),
    "features of torchvision": (lambda model: torchvision_extractor(model, ["blocks.0"]), "torch.fx cannot trace"),
    "attention of timm": (lambda model: AttentionExtract(model, method="fx"), "relbias.capture for attention"),
    "trace": (lambda model: torch.jit.trace(model, torch.zeros(1, 3, 64, 64)), "torch.jit.trace cannot trace"),
    "script": (torch.jit.script, "torch.jit.script cannot compile encodings; use torch.compile or torch.export"),
    "old onnx": (
        lambda model: torch.onnx.export(model, (torch.zeros(1, 3, 64, 64),), "model.onnx", dynamo=False),
        "torch.jit.trace cannot trace",
    ),
}


@pytest.mark.parametrize("encoding", ["table", "rope_axial", "cpe"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_refused_by_name(make_vit, monkeypatch, tmp_path, encoding, way):
    monkeypatch.chdir(tmp_path)
    call, message = WAYS[way]
    model = make_vit(depth=1)
    attach(model, encoding)
    wanted = model(torch.ones(1, 3, 64, 64))
    with pytest.raises(ValueError, match=message):
        call(model)
    assert torch.equal(model(torch.ones(1, 3, 64, 64)), wanted)


@pytest.mark.filterwarnings("ignore")
def test_script_of_any_module_with_an_encoding():
    attention = rb.RelativeAttention(16, num_heads=2, encoding="t5")
    with pytest.raises(ValueError, match=r"torch\.jit\.script cannot compile encodings"):
        torch.jit.script(attention)


def test_attention_in_windows_that_knows_its_grid():
    model = timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=56, depths=(1, 1), num_heads=(1, 2), embed_dim=16, num_classes=3
    ).eval()
    attach(model, "table")
    with pytest.raises(ValueError, match=r"torch\.fx cannot trace an attached model"):
        create_feature_extractor(model, ["layers.0"])
