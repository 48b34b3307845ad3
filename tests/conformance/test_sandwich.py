"""Sandwich against the paper's construction, the inner products of sinusoidal embeddings."""

from __future__ import annotations

import pytest
import torch

import relbias as rb

HEADS, SIZE = 3, 4


def their_bias(n: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """(H, N, N), from the embeddings of the positions."""
    positions, half = torch.arange(n, dtype=torch.float64), torch.arange(dim // 2, dtype=torch.float64)
    angles = positions[:, None] / 10000 ** (2 * half / dim)
    embeddings = torch.cat((angles.sin(), angles.cos()), dim=-1)
    ratios = torch.arange(1, HEADS + 1, dtype=torch.float64) * 8 / HEADS
    return ((embeddings @ embeddings.T) / ratios[:, None, None]).to(dtype)


@pytest.mark.parametrize("dim", [2, 128])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(dtype, implementation, assert_same, dim, is_causal):
    torch.manual_seed(0)
    n, m = 9, 14  # the queries are the last nine positions
    q = torch.randn(2, HEADS, n, SIZE, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(2, HEADS, m, SIZE, dtype=dtype, requires_grad=True) for _ in range(2))
    terms = rb.create_encoding("sandwich", HEADS, SIZE, dim=dim)(rb.relations.Sequence()(n, m))
    ours = rb.relative_attention(q, k, v, terms, is_causal=is_causal, implementation=implementation)
    logits = q @ k.mT / SIZE**0.5 + their_bias(m, dim, dtype)[:, m - n :]
    if is_causal:
        logits = logits.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(m - n + 1), -torch.inf)
    assert_same((ours, [q, k, v]), (logits.softmax(dim=-1) @ v, [q, k, v]))
