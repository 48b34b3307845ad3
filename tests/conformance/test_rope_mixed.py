"""Learned two-dimensional rotary embedding against timm's."""

from __future__ import annotations

import pytest
import torch
from timm.layers.attention import AttentionRope
from timm.layers.pos_embed_sincos import RotaryEmbeddingMixed

import relbias as rb

DIM, HEADS, DEPTH = 48, 3, 2


@pytest.mark.parametrize("prefix_tokens", [0, 1, 3])
@pytest.mark.parametrize("grid", [(4, 4), (3, 6)])
@pytest.mark.parametrize("called_with", ["the relation's grid", "a smaller grid", "a larger grid"])
def test_timm_layer(dtype, assert_same, copy_linear, monkeypatch, grid, prefix_tokens, called_with):
    torch.manual_seed(0)
    if dtype == torch.float64:  # timm computes its angles in float32 whatever its parameters are
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    embedding = RotaryEmbeddingMixed(DIM, DEPTH, HEADS, dtype=dtype)
    theirs = AttentionRope(DIM, HEADS, qkv_fused=False, num_prefix_tokens=prefix_tokens, dtype=dtype)
    relation = {
        "the relation's grid": rb.relations.Grid(*grid, prefix_tokens=prefix_tokens),
        "a smaller grid": rb.relations.Grid(7, 8, prefix_tokens=prefix_tokens),
        "a larger grid": rb.relations.Grid(2, 3, prefix_tokens=prefix_tokens),
    }[called_with]
    ours = rb.RelativeAttention(DIM, HEADS, "rope_mixed", relation, dtype=dtype)
    for name, layer in (("q_proj", theirs.q_proj), ("k_proj", theirs.k_proj), ("v_proj", theirs.v_proj)):
        copy_linear(getattr(ours, name), layer.weight, layer.bias)
    copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
    block = 1
    with torch.no_grad():
        ours.encoding.frequencies.copy_(embedding.freqs[:, block])
    x = torch.randn(2, prefix_tokens + grid[0] * grid[1], DIM, dtype=dtype, requires_grad=True)
    index, angles = ours.encoding.grid_index(*grid), embedding.get_embed(list(grid))[block]
    assert_same(
        (ours(x, index=index), [x, ours.encoding.frequencies, ours.q_proj.weight, ours.k_proj.weight]),
        (theirs(x, angles), [x, embedding.freqs, theirs.q_proj.weight, theirs.k_proj.weight]),
        [lambda g: g, lambda g: g[:, block], lambda g: g, lambda g: g],
    )


def test_the_start_is_drawn_like_timms():
    """Two times the same magnitudes, in directions at right angles, turned by a random angle per head."""
    torch.manual_seed(0)
    ours = rb.encodings.MixedRoPE(HEADS, DIM // HEADS, rb.relations.Grid(3, 3))
    angle = torch.atan2(ours.frequencies[1, :, :1], ours.frequencies[0, :, :1]).detach()
    torch.manual_seed(0)
    theirs = RotaryEmbeddingMixed(DIM, 1, HEADS).freqs[:, 0].detach()
    their_angle = torch.atan2(theirs[1, :, :1], theirs[0, :, :1])
    size = DIM // HEADS // 4
    for frequencies, turn in ((ours.frequencies.detach(), angle), (theirs, their_angle)):
        # Turned back by the head's angle both are the same magnitudes along x and then along y.
        x = frequencies[0] * turn.cos() + frequencies[1] * turn.sin()
        y = frequencies[1] * turn.cos() - frequencies[0] * turn.sin()
        magnitudes = torch.tensor([10.0 ** (-p / size) for p in range(size)]).expand(HEADS, -1)
        zeros = torch.zeros(HEADS, size)
        torch.testing.assert_close(x, torch.cat((magnitudes, zeros), dim=1), rtol=0, atol=1e-6)
        torch.testing.assert_close(y, torch.cat((zeros, magnitudes), dim=1), rtol=0, atol=1e-6)
