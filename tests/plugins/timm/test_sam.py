"""VisionTransformerSAM: windows, with padding, and whole maps."""

import pytest
import timm
import torch
from tests.plugins.timm.host_case import HostCase, moved, randomised

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, list_models, resize, settings

SMALL = {
    "depth": 2,
    "embed_dim": 48,
    "num_heads": 2,
    "num_classes": 5,
    "window_size": 3,
    "global_attn_indexes": (1,),
    "neck_chans": 16,
}


class TestSam(HostCase):
    """Windows of 3 x 3 in the first block, in a map of 4 x 5 patches that is padded for them."""

    architecture = "samvit_base_patch16_224"
    arguments = SMALL
    grid = (4, 5)
    smaller = (2, 4)
    sizes = "any"

    def prefix_tokens(self, model):
        return 0

    def make(self, **arguments):
        if arguments.get("depth") == 1:
            arguments["global_attn_indexes"] = ()
        return super().make(**arguments)

    def table_grids(self, model):
        return [(3, 3), self.grid]

    def call_grids(self, model, grid):
        return [(3, 3), grid]


@pytest.mark.parametrize("form", [{}, {"use_rel_pos": False}, {"use_rel_pos": False, "use_rope": True}])
@pytest.mark.parametrize("fused", [True, False])
def test_every_form_of_attention_starts_unchanged(form, fused):
    arguments = {**SMALL, "use_rel_pos": True, "qk_norm": True, **form}
    model = randomised(timm.models.vision_transformer_sam.VisionTransformerSAM((64, 80), **arguments))
    for block in model.blocks:
        block.attn.fused_attn = fused
    images = torch.randn(2, 3, 64, 80)
    with torch.no_grad():
        before = model(images)
    model(images).square().sum().backward()
    wanted = {key: parameter.grad.clone() for key, parameter in model.named_parameters()}
    model.zero_grad()
    attach(model, {"a": "irpe", "b": "rope_axial"})
    with torch.no_grad():
        assert torch.equal(model(images), before)
    model(images).square().sum().backward()
    found = {key: parameter.grad for key, parameter in model.named_parameters()}
    for key, gradient in wanted.items():
        torch.testing.assert_close(found[key], gradient, rtol=1e-3, atol=1e-5 * max(0.1, float(gradient.abs().max())))


def test_each_block_has_its_own_grid():
    model = randomised(timm.models.vision_transformer_sam.VisionTransformerSAM((64, 80), **SMALL | {"depth": 4}))
    attach(model, "table", shared=True)
    sizes = [(encoding.relation.height, encoding.relation.width) for encoding in encodings(model)]
    assert sizes == [(3, 3), (4, 5)]
    assert model.blocks[0].attn.encoding is model.blocks[3].attn.encoding
    resize(model, (6, 6))
    sizes = [(encoding.relation.height, encoding.relation.width) for encoding in encodings(model)]
    assert sizes == [(3, 3), (6, 6)]
    assert torch.isfinite(model(torch.randn(1, 3, 96, 96))).all()


@pytest.mark.parametrize(("start", "end"), [((3, 3), (4, 5)), ((4, 5), (3, 3))])
def test_windows_and_maps_of_one_size_share_no_more_than_at_another(start, end):
    """Else a model attached with the settings of a resized one would share otherwise, and take its state wrongly."""
    model, fresh = (
        randomised(timm.models.vision_transformer_sam.VisionTransformerSAM((48, 48), **SMALL)) for _ in range(2)
    )
    attach(model, "table", grid=start, shared=True)
    assert len(encodings(model)) == 2
    resize(model, end)
    moved(model)
    attach(fresh, **settings(model))
    fresh.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 48, 48)
    assert torch.equal(fresh(images), model(images))


def test_one_encoding_for_windows_and_maps():
    model = randomised(timm.models.vision_transformer_sam.VisionTransformerSAM((64, 80), **SMALL))
    images = torch.randn(2, 3, 64, 80)
    encoding = rb.create_encoding("table", 2, 24, rb.relations.Grid(5, 5))
    with torch.no_grad():
        before = model(images)
        attach(model, encoding)
        assert torch.equal(model(images), before)
        encoding.table.normal_()
        assert (model(images) - before).abs().max() > 1e-3
        detach(model)
        assert torch.equal(model(images), before)


def test_patch_dropout_is_refused_and_nothing_changes():
    model = timm.models.vision_transformer_sam.VisionTransformerSAM((64, 80), patch_drop_rate=0.5, **SMALL)
    with pytest.raises(ValueError, match="drops patches in training; create it with patch_drop_rate=0"):
        attach(model, "table")
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())


def test_listed():
    names = timm.list_models(module="vision_transformer_sam")
    assert len(names) == 4
    assert set(names) <= set(list_models())


def test_one_encoding_takes_the_largest_of_its_grids():
    arguments = SMALL | {"global_attn_indexes": (0,)}  # windows come last
    model = randomised(timm.models.vision_transformer_sam.VisionTransformerSAM((64, 80), **arguments))
    encoding = rb.create_encoding("table", 2, 24, rb.relations.Grid(4, 5))
    attach(model, encoding)
    for grid, wanted in (((6, 6), (6, 6)), ((2, 5), (3, 5))):
        resize(model, grid)
        assert (encoding.relation.height, encoding.relation.width) == wanted
