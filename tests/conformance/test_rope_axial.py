"""Axial rotary embedding against timm's attention with rotary embedding."""

from __future__ import annotations

import pytest
import torch
from timm.layers.attention import AttentionRope
from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, build_rotary_pos_embed

import relbias as rb

DIM, HEADS = 48, 3
SIZE = DIM // HEADS


def y_before_x(heads: int) -> torch.Tensor:
    """For every dimension of timm's heads, whose first half turns by y, our dimension: our first half turns by x."""
    dims = torch.arange(SIZE).roll(SIZE // 2)
    return (torch.arange(heads)[:, None] * SIZE + dims).flatten()


def timm_embedding(grid: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Timm's sines and cosines, (N, 2 D)."""
    if dtype == torch.float32:
        module = RotaryEmbeddingCat(SIZE, in_pixels=False, temperature=100.0, feat_shape=list(grid))
        return module.get_embed(list(grid))
    # timm's constant, the bands in float32, is substituted by the same formula in float64.
    bands = 1.0 / 100.0 ** (torch.arange(SIZE // 4, dtype=dtype) / (SIZE // 4))
    return torch.cat(build_rotary_pos_embed(list(grid), bands=bands, in_pixels=False, dtype=dtype), dim=-1)


@pytest.mark.parametrize("prefix_tokens", [0, 1, 3])
@pytest.mark.parametrize("grid", [(4, 4), (3, 6)])
def test_timm_attention(dtype, implementation, assert_same, copy_linear, grid, prefix_tokens):
    torch.manual_seed(0)
    theirs = AttentionRope(DIM, HEADS, qkv_fused=False, num_prefix_tokens=prefix_tokens, dtype=dtype)
    relation = rb.relations.Grid(*grid, prefix_tokens=prefix_tokens)
    ours = rb.RelativeAttention(DIM, HEADS, "rope_axial", relation, implementation=implementation, dtype=dtype)
    order = y_before_x(HEADS)
    for name in ("q_proj", "k_proj"):
        layer = getattr(theirs, name)
        copy_linear(getattr(ours, name), layer.weight[order], layer.bias[order])
    copy_linear(ours.v_proj, theirs.v_proj.weight, theirs.v_proj.bias)
    copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
    x = torch.randn(2, prefix_tokens + grid[0] * grid[1], DIM, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x), [x, ours.q_proj.weight, ours.k_proj.weight]),
        (theirs(x, timm_embedding(grid, dtype)), [x, theirs.q_proj.weight, theirs.k_proj.weight]),
        [lambda g: g, lambda g: g[order], lambda g: g[order]],
    )


def test_another_grid_than_the_relations_needs_only_its_index(dtype, assert_same, copy_linear):
    torch.manual_seed(0)
    theirs = AttentionRope(DIM, HEADS, qkv_fused=False, num_prefix_tokens=1, dtype=dtype)
    relation = rb.relations.Grid(7, 9, prefix_tokens=1)
    ours = rb.RelativeAttention(DIM, HEADS, "rope_axial", relation, dtype=dtype)
    order = y_before_x(HEADS)
    for name in ("q_proj", "k_proj"):
        layer = getattr(theirs, name)
        copy_linear(getattr(ours, name), layer.weight[order], layer.bias[order])
    copy_linear(ours.v_proj, theirs.v_proj.weight, theirs.v_proj.bias)
    copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
    x = torch.randn(2, 1 + 5 * 4, DIM, dtype=dtype, requires_grad=True)
    assert_same((ours(x, index=relation(5, 4)), [x]), (theirs(x, timm_embedding((5, 4), dtype)), [x]))
