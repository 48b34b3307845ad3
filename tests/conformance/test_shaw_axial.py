"""Relative vectors for rows and for columns against those of timm's Bottleneck Transformer."""

from __future__ import annotations

import pytest
import torch
from timm.layers.bottleneck_attn import BottleneckAttn

import relbias as rb

DIM, HEADS = 24, 3


@pytest.mark.parametrize("grid", [(3, 5), (4, 2), (1, 4)])
def test_timm(dtype, assert_same, copy_linear, implementation, grid):
    torch.manual_seed(0)
    theirs = BottleneckAttn(DIM, feat_size=grid, num_heads=HEADS, scale_pos_embed=True, dtype=dtype)
    distance, relation = max(grid) - 1, rb.relations.Grid(*grid)
    encoding = rb.create_encoding("shaw_axial", HEADS, DIM // HEADS, relation, max_distance=distance)
    ours = rb.RelativeAttention(DIM, HEADS, encoding, relation, implementation=implementation).to(dtype)
    weights = theirs.qkv.weight.flatten(1).chunk(3)
    for layer, weight in zip((ours.q_proj, ours.k_proj, ours.v_proj), weights, strict=True):
        copy_linear(layer, weight)
    copy_linear(ours.out_proj, torch.eye(DIM))
    tables = [theirs.pos_embed.height_rel, theirs.pos_embed.width_rel]
    # Theirs hold j - i from the farthest on, for the offsets that occur; ours i - j.
    parts = [slice(distance + 1 - size, distance + size) for size in grid]
    with torch.no_grad():
        for mine, their, part in zip((encoding.rows, encoding.columns), tables, parts, strict=True):
            mine[0, part] = torch.nn.init.normal_(their).flip(0)
    x = torch.randn(2, grid[0] * grid[1], DIM, dtype=dtype, requires_grad=True)
    image = x.mT.unflatten(-1, grid)
    expected = theirs(image).flatten(2).mT
    # Of one row there is one offset, whose vector adds the same to all keys: no gradient.
    axes = [axis for axis in (0, 1) if grid[axis] > 1]
    assert_same(
        (ours(x), [x, *((encoding.rows, encoding.columns)[a] for a in axes), ours.q_proj.weight, ours.v_proj.weight]),
        (expected, [x, *(tables[a] for a in axes), theirs.qkv.weight, theirs.qkv.weight]),
        [
            lambda g: g,
            *[
                lambda g, a=a: torch.nn.functional.pad(g.flip(0), (0, 0, *[distance + 1 - grid[a]] * 2))[None]
                for a in axes
            ],
            lambda g: g.flatten(1).chunk(3)[0],
            lambda g: g.flatten(1).chunk(3)[2],
        ],
    )
