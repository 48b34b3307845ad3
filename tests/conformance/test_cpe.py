"""Conditional positional encoding against the one of timm's Twins."""

from __future__ import annotations

import pytest
import torch
from timm.models.twins import PosConv

import relbias as rb

DIM, HEADS = 24, 3


@pytest.mark.parametrize("grid", [(3, 5), (1, 4), (6, 2)])
@pytest.mark.parametrize("prefix_tokens", [0, 1])
def test_timm(dtype, assert_same, grid, prefix_tokens):
    torch.manual_seed(0)
    theirs = PosConv(DIM, DIM, dtype=dtype)
    ours = rb.create_encoding("cpe", HEADS, DIM // HEADS, rb.relations.Grid(*grid, prefix_tokens)).to(dtype)
    weight, bias = theirs.proj[0].weight, theirs.proj[0].bias
    with torch.no_grad():
        ours.weight.copy_(weight)
        ours.bias.copy_(bias)
    x = torch.randn(2, prefix_tokens + grid[0] * grid[1], DIM, dtype=dtype, requires_grad=True)
    expected = torch.cat((x[:, :prefix_tokens], theirs(x[:, prefix_tokens:], grid)), dim=1)
    assert_same((ours.embed(x), [x, ours.weight, ours.bias]), (expected, [x, weight, bias]))


def test_the_start_is_drawn_like_timms():
    torch.manual_seed(0)
    theirs, ours = PosConv(900, 900).proj[0], rb.create_encoding("cpe", 1, 900, rb.relations.Grid(2, 2))
    for mine, their in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        torch.testing.assert_close(mine.std(), their.std(), rtol=0.05, atol=0)
        torch.testing.assert_close(mine.max(), their.max(), rtol=0.01, atol=0)
