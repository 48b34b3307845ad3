"""The vision encoders of language models: DeepSeek, Qwen3 and Gemma 4, alone and in classifiers."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import HostCase, moved, randomised

import relbias as rb
from relbias.plugins.binding import bind
from relbias.plugins.timm import attach, list_models

SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 2}
GEMMA = {**SMALL, "head_dim": 24, "intermediate_size": 64, "position_embedding_size": 64}


class TestDeepseek(HostCase):
    architecture = "deepseek_vit_412m"
    arguments = {**SMALL, "num_classes": 5}
    patch = 14
    sizes = "any"


class TestQwen3(HostCase):
    architecture = "qwen3_vit_88m"
    arguments = {**SMALL, "num_classes": 5}
    sizes = "any"
    compiled = False  # the same attention


class TestGemma4(HostCase):
    architecture = "gemma4_vit_167m"
    arguments = {**GEMMA, "num_classes": 5}
    sizes = "any"


@pytest.mark.parametrize(
    ("name", "arguments", "size"),
    [
        ("deepseek_vit_412m_align", {**SMALL, "num_classes": 5, "out_features": 32}, (42, 70)),
        ("deepseek_vit_412m_enc", {**SMALL, "out_features": 32, "dynamic_img_pad": True}, (40, 70)),
        ("qwen3_vit_88m_merge", {**SMALL, "num_classes": 5, "out_features": 32}, (64, 96)),
        ("qwen3_vit_88m_enc", {**SMALL, "out_features": 32}, (64, 96)),
        ("gemma4_vit_167m_enc", GEMMA, (48, 96)),
        ("gemma4_vit_570m", {**GEMMA, "num_classes": 5, "encoder_pool": "soft", "num_kv_heads": 1}, (48, 96)),
    ],
)
def test_encoders_and_projectors(name, arguments, size):
    model, images = randomised(timm.create_model(name, **arguments)), torch.rand(2, 3, *size)
    with torch.no_grad():
        before = model(images)
        attach(model, {"a": "irpe", "b": "rope_mixed"}, grid=(4, 6))
        assert torch.equal(model(images), before)
        assert (moved(model)(images) - before).abs().max() > 1e-3


@pytest.mark.parametrize("encoding", ["rope_axial", "rope_mixed", "shaw"])
def test_logits_of_gemma_depend_on_the_offset_alone(encoding):
    model = randomised(timm.create_model("gemma4_vit_167m_enc", **GEMMA)).double()
    attach(model, encoding, grid=(3, 5))
    attention = moved(model).blocks[0].attn
    tokens = torch.randn(1, 1, 48, dtype=torch.float64).expand(1, 15, 48)
    places = torch.cartesian_prod(torch.arange(3), torch.arange(5)).flip(1)[None]
    cos, sin = model.rotary_emb(tokens, places)
    with bind((3, 5)), rb.capture(model) as captured:
        attention(tokens, cos, sin)
    logits = captured[0].logits[0].view(2, 3, 5, 3, 5)
    assert logits.std() > 1e-2
    torch.testing.assert_close(logits[:, :2, :, :2], logits[:, 1:, :, 1:], rtol=0, atol=1e-6)
    torch.testing.assert_close(logits[:, :, :4, :, :4], logits[:, :, 1:, :, 1:], rtol=0, atol=1e-6)


def test_gemma_refuses_patches_with_coordinates():
    model = randomised(timm.create_model("gemma4_vit_167m", **GEMMA))
    attach(model, "table", grid=(3, 5))
    patches = torch.rand(1, 4, 16 * 16 * 3)
    places = torch.cartesian_prod(torch.arange(2), torch.arange(2))[None]
    for call in (
        lambda: model(patches, patch_coord=places),
        lambda: model({"patches": patches, "patch_coord": places}),
        lambda: model.encoder({"patches": patches, "patch_coord": places}),
        lambda: model.encoder.forward_features(patches, places),
        lambda: model.forward_intermediates(patches, patch_coord=places, output_fmt="NLC"),
        lambda: model.forward_features(torch.rand(1, 3, 32, 32), patch_coord=places),
    ):
        with pytest.raises(ValueError, match=r"takes images .* not patches with coordinates"):
            call()


def test_gemma_has_the_grid_of_its_usual_images():
    model = timm.create_model("gemma4_vit_167m", device="meta", depth=1)
    attach(model, "table")
    assert model.encoder.blocks[0].attn.encoding.relation == rb.relations.Grid(48, 48)


@pytest.mark.parametrize(("module", "count"), [("deepseek_vit", 3), ("qwen3_vit", 9), ("gemma4_vit", 4)])
def test_listed(module, count):
    names = timm.list_models(module=module)
    assert len(names) == count
    assert set(names) <= set(list_models())
