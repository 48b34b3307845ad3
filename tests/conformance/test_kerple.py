"""KERPLE against a transcription of its authors' layers, which clamp the parameters before they use them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import relbias as rb

HEADS, SIZE = 5, 4


class TheirKernel(nn.Module):
    """A bias (H, N, N) below the diagonal, with parameters (H, 1, 1)."""

    def __init__(self, variant: str, p: torch.Tensor, a: torch.Tensor) -> None:
        super().__init__()
        self.variant = variant
        self.p, self.a = nn.Parameter(p[:, None, None].clone()), nn.Parameter(a[:, None, None].clone())

    def forward(self, n: int) -> torch.Tensor:
        self.p.data.clamp_(min=1e-2, max=None if self.variant == "log" else 2.0)
        self.a.data.clamp_(min=1e-2)
        distance = torch.tensor([[max(i - j, 0) for j in range(n)] for i in range(n)], dtype=self.p.dtype)
        if self.variant == "log":
            return -self.p * torch.log(1 + self.a * distance)
        return -(distance.pow(self.p) * self.a)


@pytest.mark.parametrize("variant", ["log", "power"])
def test_causal_attention(dtype, implementation, assert_same, variant):
    torch.manual_seed(0)
    n = 13
    # Parameters within their limits, at them and beyond them on both sides.
    p = torch.tensor([0.7, 1.9, 0.01, -0.4, 2.5], dtype=dtype)
    a = torch.tensor([0.3, -0.1, 0.9, 0.002, 0.5], dtype=dtype)
    encoding = rb.create_encoding("kerple", HEADS, SIZE, variant=variant, dtype=dtype)
    with torch.no_grad():
        encoding.p.copy_(p)
        encoding.a.copy_(a)
    theirs = TheirKernel(variant, p, a)
    q, k, v = (torch.randn(2, HEADS, n, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    terms = encoding(rb.relations.Sequence()(n))
    ours = rb.relative_attention(q, k, v, terms, is_causal=True, implementation=implementation)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
    logits = (q @ k.mT / SIZE**0.5 + theirs(n)).masked_fill(hidden, torch.finfo(dtype).min)
    assert_same(
        (ours, [q, k, v, encoding.p, encoding.a]),
        (logits.softmax(dim=-1) @ v, [q, k, v, theirs.p, theirs.a]),
        [lambda g: g] * 3 + [lambda g: g.flatten()] * 2,
    )


@pytest.mark.parametrize("variant", ["log", "power"])
def test_cached_step_reads_the_last_row(variant):
    encoding = rb.create_encoding("kerple", HEADS, SIZE, variant=variant)
    theirs = TheirKernel(variant, encoding.p.detach(), encoding.a.detach())
    (entry,) = encoding(rb.relations.Sequence()(1, 30)).entries
    torch.testing.assert_close(entry.b[:, entry.index.codes()[0, 0, 0]].float(), theirs(30)[:, -1])
