"""Axial rotary embedding against timm's attention with rotary embedding."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from timm.layers.attention import AttentionRope
from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, build_rotary_pos_embed

import relbias as rb

DIM, HEADS = 48, 3
SIZE = DIM // HEADS


def y_before_x(heads: int, size: int = SIZE, axes: int = 2) -> torch.Tensor:
    """For every dimension of timm's heads, whose first part turns by the first axis, ours: here the last."""
    dims = torch.arange(size).view(axes, -1).flip(0).flatten()
    return (torch.arange(heads)[:, None] * size + dims).flatten()


def timm_embedding(
    grid: tuple[int, ...], dtype: torch.dtype, size: int = SIZE, bases: tuple[float, ...] = (100.0,)
) -> torch.Tensor:
    """Timm's sines and cosines, (N, 2 D)."""
    if dtype == torch.float32 and len(grid) == 2 and len(bases) == 1:
        module = RotaryEmbeddingCat(SIZE, in_pixels=False, temperature=100.0, feat_shape=list(grid))
        return module.get_embed(list(grid))
    # timm's constant, the bands in float32 and with one base, is substituted by the same formula in this dtype.
    pairs = size // (2 * len(grid))
    bands = 1.0 / torch.tensor(bases, dtype=dtype)[:, None] ** (torch.arange(pairs, dtype=dtype) / pairs)
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


@pytest.mark.parametrize(
    ("relation", "bases"),
    [
        (rb.relations.Volume(3, 2, 4, prefix_tokens=1), (100.0,)),
        (rb.relations.Volume(3, 2, 4), (10.0, 100.0, 1000.0)),
        (rb.relations.Grid(3, 6), (20.0, 1000.0)),
    ],
    ids=["volume", "a base for each axis of a volume", "frequency by time"],
)
def test_volumes_and_a_base_for_each_axis(dtype, assert_same, copy_linear, relation, bases):
    torch.manual_seed(0)
    size, axes = 12, len(relation.sizes)
    theirs = AttentionRope(4 * size, 4, qkv_fused=False, num_prefix_tokens=relation.prefix_tokens, dtype=dtype)
    options = {"base": bases if len(bases) > 1 else bases[0]}
    ours = rb.RelativeAttention(4 * size, 4, partial(rb.encodings.AxialRoPE, **options), relation, dtype=dtype)
    order = y_before_x(4, size, axes)
    for name in ("q_proj", "k_proj"):
        layer = getattr(theirs, name)
        copy_linear(getattr(ours, name), layer.weight[order], layer.bias[order])
    copy_linear(ours.v_proj, theirs.v_proj.weight, theirs.v_proj.bias)
    copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
    x = torch.randn(2, relation().shape[0], 4 * size, dtype=dtype, requires_grad=True)
    assert_same(
        (ours(x), [x, ours.q_proj.weight]),
        (theirs(x, timm_embedding(relation.sizes, dtype, size, bases)), [x, theirs.q_proj.weight]),
        [lambda g: g, lambda g: g[order]],
    )
