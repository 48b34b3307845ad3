"""Blocks that attend beside their MLP, and differential attention."""

import pytest
from tests.plugins.timm.host_case import HostCase

from relbias.plugins.timm import attach


class TestParallel(HostCase):
    architecture = "vit_base_patch16_xp_224"
    arguments = {"depth": 2, "embed_dim": 48, "num_heads": 2, "dynamic_img_size": True, "num_classes": 5}
    sizes = "any"

    def attentions(self, model):
        return list(model.blocks)


class TestParallelWithOneProjection(TestParallel):
    architecture = "vit_pwee_patch16_reg1_gap_256"
    compiled = False


class TestDifference(HostCase):
    architecture = "vit_dwee_patch16_reg1_gap_256"
    arguments = TestParallel.arguments
    sizes = "any"

    def table_grids(self, model):
        return [self.grid] * 4  # each attention is two

    def call_grids(self, model, grid):
        return [grid] * 4

    def biased(self, model, tables, *arguments):
        return super().biased(model, [table for table in tables for _ in range(2)], *arguments)

    def test_values_have_another_size(self):
        model = self.make()
        with pytest.raises(ValueError, match="vectors of size 12 to the values, which have size 24"):
            attach(model, "shaw", values=True)
        assert not any("encoding" in name for name in model.state_dict())


class TestDifferenceWithOneFactor(TestDifference):
    architecture = "vit_dlittle_patch16_reg1_gap_256"
    compiled = False


class TestParallelDifference(TestDifference):
    architecture = "vit_dpwee_patch16_reg1_gap_256"
    compiled = False

    def attentions(self, model):
        return list(model.blocks)
