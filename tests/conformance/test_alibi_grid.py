"""ALiBi on a grid against a transcription of CROMA's construction, point by point."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import relbias as rb


def their_bias(heads: int, side: int) -> torch.Tensor:
    """(H, side^2, side^2), for a power of two of heads."""
    start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
    slopes = [start * start**i for i in range(heads)]
    points = list(itertools.product(range(side), range(side)))
    flat = [-slope * math.dist(a, b) for slope in slopes for a in points for b in points]
    return torch.tensor(flat, dtype=torch.float64).view(heads, side**2, side**2)


@pytest.mark.parametrize("heads", [2, 8])
def test_attention(dtype, implementation, assert_same, heads):
    torch.manual_seed(0)
    grid = rb.relations.Grid(4, 4)
    q, k, v = (torch.randn(2, heads, 16, 4, dtype=dtype, requires_grad=True) for _ in range(3))
    terms = rb.create_encoding("alibi", heads, 4, grid)(grid())
    ours = rb.relative_attention(q, k, v, terms, implementation=implementation)
    theirs = (q @ k.mT / 2 + their_bias(heads, 4).to(dtype)).softmax(dim=-1) @ v
    assert_same((ours, [q, k, v]), (theirs, [q, k, v]))
