"""Eva: EVA, EVA-02, RoPE-ViT, the Perception Encoder and DINOv3."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import HostCase, moved, randomised

import relbias as rb
from relbias.plugins.binding import bind
from relbias.plugins.timm import attach, list_models
from relbias.plugins.timm.qkv import project_without_key_bias

SIZE = {"img_size": (48, 80), "depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5}


class TestEva(HostCase):
    """EVA-02: EvaAttention, rope for the patches, projections of their own."""

    architecture = "eva02_tiny_patch14_224"
    arguments = {"depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5, "dynamic_img_size": True}
    patch = 14
    sizes = "any"


class TestDinoV3(HostCase):
    """Registers, pairs in halves, sizes of each call."""

    architecture = "vit_small_patch16_dinov3"
    arguments = {"depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5}
    sizes = "any"
    compiled = False


class TestMixedRope(HostCase):
    """AttentionRope, with a learned rope for each layer and head."""

    architecture = "vit_small_patch16_rope_mixed_224"
    arguments = {"depth": 2, "embed_dim": 48, "num_heads": 2, "num_classes": 5}
    sizes = "set"
    compiled = False


VARIANTS = {
    "plain": {"use_rot_pos_emb": False},
    "eva with norm and fused projection": {"scale_attn_inner": True, "qk_norm": True},
    "eva without bias": {"qkv_bias": False},
    "rope type with grouped heads": {
        "attn_type": "rope",
        "qkv_fused": False,
        "num_kv_heads": 1,
        "qk_norm": True,
        "num_reg_tokens": 2,
    },
    "post norm": {"use_post_norm": True, "qkv_fused": False, "class_token": False, "global_pool": "avg"},
    "halves in one projection": {"attn_type": "rope", "rope_rotate_half": True, "scale_attn_inner": True},
    "three sections": {"attn_type": "rope", "rope_type": "mrope", "rope_mrope_section": (2, 2, 2)},
    "attention pool": {"global_pool": "map", "class_token": False},
}


def variant(name):
    return randomised(timm.models.eva.Eva(**{"use_rot_pos_emb": True, **SIZE, **VARIANTS[name]}))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("fused", [True, False])
def test_every_form_of_attention_starts_unchanged(name, fused):
    model, images = variant(name), torch.randn(2, 3, 48, 80)
    for block in model.blocks:
        block.attn.fused_attn = fused
    before = model(images)
    before.square().sum().backward()
    wanted = {key: parameter.grad.clone() for key, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    attach(model, {"a": "irpe", "b": "rope_mixed"})
    with torch.no_grad():
        assert torch.equal(model(images), before)
    model(images).square().sum().backward()
    found = dict(model.named_parameters())
    for key, gradient in wanted.items():
        torch.testing.assert_close(
            found[key].grad, gradient, rtol=1e-3, atol=1e-5 * max(0.1, float(gradient.abs().max()))
        )
    assert (moved(model)(images) - before).abs().max() > 1e-3


@pytest.mark.parametrize("encoding", ["rope_axial", "rope_mixed", "shaw", "irpe"])
@pytest.mark.parametrize("name", ["eva with norm and fused projection", "halves in one projection", "three sections"])
@pytest.mark.parametrize("implementation", ["auto", "reference", "folded"])
def test_logits_depend_on_the_offset_alone_though_the_host_turns(name, encoding, implementation):
    """With equal tokens everywhere nothing but the relation can tell two pairs of tokens apart."""
    model = variant(name).double()
    attach(model, encoding)
    attention = moved(model).blocks[0].attn
    attention.fused_attn = implementation != "reference"
    height, width = grid = (3, 5)
    tokens = torch.randn(1, 1, 48, dtype=torch.float64).expand(1, 16, 48)
    rope = model.rope.get_embed(shape=grid).double()
    with torch.set_grad_enabled(implementation == "auto"), bind(grid), rb.capture(model) as captured:
        out = attention(tokens, rope=rope)
    logits = captured[0].logits.unflatten(-1, (16,))[0, :, 1:, 1:]
    logits = logits.view(2, height, width, height, width)
    assert logits.std() > 1e-2
    for dy in range(1 - height, height):
        for dx in range(1 - width, width):
            same = [
                logits[:, y, x, y + dy, x + dx]
                for y in range(max(0, -dy), min(height, height - dy))
                for x in range(max(0, -dx), min(width, width - dx))
            ]
            torch.testing.assert_close(torch.stack(same), same[0].expand(len(same), 2), rtol=0, atol=1e-6)
    # What is computed is what is captured.
    attention.proj = torch.nn.Identity()
    values = tokens.clone()
    values[0, 3] += 1.0  # so that weights matter
    with torch.set_grad_enabled(implementation == "auto"), bind(grid), rb.capture(model) as captured:
        out = attention(values, rope=rope)
    attention.norm = torch.nn.Identity()
    with torch.no_grad(), bind(grid):
        plain = attention(values, rope=rope)
        v = (attention.qkv(values) if attention.qkv.bias is not None else project_without_key_bias(attention, values))[
            ..., 96:
        ]
    wanted = (captured[0].weights @ v.view(1, 16, 2, 24).transpose(1, 2)).transpose(1, 2).reshape(1, 16, 48)
    torch.testing.assert_close(plain, wanted, rtol=0, atol=1e-6)
    assert out.shape == plain.shape


@pytest.mark.parametrize("attention", [timm.models.eva.EvaAttention, timm.layers.AttentionRope])
def test_a_gate_stays(attention):
    model, images = variant("plain"), torch.randn(2, 3, 48, 80)
    gated = attention(48, num_heads=2, scale_norm=False, gated=True)
    assert gated.gate is not None
    model.blocks[0].attn = gated
    randomised(model)
    with torch.no_grad():
        before = model(images)
        attach(model, "table")
        assert torch.equal(model(images), before)


def test_users_mask_joins_the_encoding():
    model, images = variant("eva without bias"), torch.randn(2, 3, 48, 80)
    allowed = (torch.rand(16, 16, generator=torch.Generator().manual_seed(4)) > 0.3) | torch.eye(16, dtype=torch.bool)
    with torch.no_grad():
        wanted = [model(images, attn_mask=allowed), model(images, is_causal=True)]
        attach(model, "table")
        found = [model(images, attn_mask=allowed), model(images, is_causal=True)]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rope", ["cat", "mixed"])
def test_patch_dropout_keeps_the_pairs_of_the_patches_that_are_left(rope, bias_mask, monkeypatch):
    arguments = {"patch_drop_rate": 0.5, "rope_type": rope, "use_rot_pos_emb": True, "dynamic_img_size": True, **SIZE}
    model = randomised(timm.models.eva.Eva(**arguments)).train()
    images, kept = torch.randn(2, 3, 48, 80), []
    model.patch_drop.register_forward_hook(lambda module, args, out: kept.append(out[1]))

    def run():
        torch.manual_seed(5)
        return model(images)

    with torch.no_grad():
        before = run()
        attach(model, "table")
        assert torch.equal(run(), before)
        moved(model)
        out = run()
        tables = [block.attn.encoding.table for block in model.blocks]
        rb.plugins.timm.detach(model)
        places = torch.cat((torch.zeros(2, 1, dtype=torch.long), 1 + kept[-1]), dim=1)
        full = [bias_mask(table, (3, 5), (3, 5), 1)[0] for table in tables]
        masks = iter([torch.stack([m[:, p][:, :, p] for p in places]) for m in full])
        plain = torch.nn.functional.scaled_dot_product_attention

        def with_bias(q, k, v, attn_mask=None, **others):
            return plain(q, k, v, attn_mask=next(masks), **others)

        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", with_bias)
        wanted = run()
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-4)
    assert (wanted - before).abs().max() > 1e-2


def test_listed():
    names = timm.list_models(module="eva")
    assert len(names) == 65
    assert set(names) <= set(list_models())
