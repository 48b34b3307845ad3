"""FIRE against a transcription of the paper's listing, with torch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import relbias as rb

HEADS, SIZE = 3, 4


class TheirFire(nn.Module):
    """The bias of all pairs of n positions, (H, n, n)."""

    def __init__(self, width: int, threshold: float) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, HEADS))
        self.c = nn.Parameter(torch.tensor(0.1))
        self.init_L = threshold
        self.L_multiplier = nn.Parameter(torch.tensor(1.0))

    def forward(self, n: int) -> torch.Tensor:
        positions = torch.arange(n, dtype=self.c.dtype)
        distance = positions[:, None] - positions[None, :]
        normalizer = torch.max(positions, (self.L_multiplier * self.init_L).abs())[:, None]
        distance = torch.log((self.c * distance).abs() + 1)
        normalizer = torch.log((self.c * normalizer).abs() + 1) + 1e-6
        return self.mlp((distance / normalizer)[..., None]).permute(2, 0, 1)


@pytest.mark.parametrize("threshold", [5.0, 512.0])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(dtype, implementation, assert_same, threshold, is_causal):
    torch.manual_seed(0)
    n, m = 9, 14  # the queries are the last nine positions
    theirs = TheirFire(32, threshold).to(dtype)
    with torch.no_grad():
        theirs.c.fill_(0.3)
        theirs.L_multiplier.fill_(1.1)
    encoding = rb.create_encoding("fire", HEADS, SIZE, threshold=threshold, dtype=dtype)
    pairs = [
        (encoding.hidden.weight, theirs.mlp[0].weight),
        (encoding.hidden.bias, theirs.mlp[0].bias),
        (encoding.out.weight, theirs.mlp[2].weight),
        (encoding.c, theirs.c),
        (encoding.threshold_factor, theirs.L_multiplier),
    ]
    with torch.no_grad():
        encoding.out.bias.copy_(theirs.mlp[2].bias)  # shifts whole rows, so it has no gradient
        for mine, their in pairs:
            mine.copy_(their)
    q = torch.randn(2, HEADS, n, SIZE, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(2, HEADS, m, SIZE, dtype=dtype, requires_grad=True) for _ in range(2))
    terms = encoding(rb.relations.Sequence()(n, m))
    ours = rb.relative_attention(q, k, v, terms, is_causal=is_causal, implementation=implementation)
    logits = q @ k.mT / SIZE**0.5 + theirs(m)[:, m - n :]
    if is_causal:
        logits = logits.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(m - n + 1), -torch.inf)
    # c and L barely matter where all is far within L.
    assert_same(
        (ours, [q, k, v, *(mine for mine, _ in pairs)]),
        (logits.softmax(dim=-1) @ v, [q, k, v, *(their for _, their in pairs)]),
    )
