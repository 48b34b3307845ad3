"""Transformer-XL's keys against a loop over the paper's terms (a) to (d)."""

from __future__ import annotations

import math

import pytest
import torch

import relbias as rb

HEADS, SIZE = 2, 6
DIM = HEADS * SIZE


def sinusoids(distance: int, dtype: torch.dtype) -> torch.Tensor:
    """R of a signed distance, all sines before all cosines."""
    angles = [distance * math.exp(-math.log(10000.0) * 2 * k / DIM) for k in range(DIM // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=dtype)


def transcription(q, k, v, projection, u, v_bias, causal):
    """softmax((a + b + c + d) / sqrt(D)) v, pair by pair; the queries are the last of the keys' positions."""
    batch, heads, n, size = q.shape
    m = k.shape[2]
    items = []
    for b in range(batch):
        for h in range(heads):
            for i in range(n):
                position = i + m - n
                keys = range(position + 1) if causal else range(m)
                logits = []
                for j in keys:
                    r = projection[h] @ sinusoids(position - j, q.dtype)
                    terms = [q[b, h, i] @ k[b, h, j], q[b, h, i] @ r, u[h] @ k[b, h, j], v_bias[h] @ r]
                    logits.append(sum(terms) / math.sqrt(size))
                a = torch.stack(logits).softmax(dim=0)
                items.append(sum(a[place] * v[b, h, j] for place, j in enumerate(keys)))
    return torch.stack(items).view(batch, heads, n, size)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("n", "m"), [(5, 5), (2, 6)])
@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_every_term(dtype, assert_same, implementation, n, m, causal):
    torch.manual_seed(0)
    encoding = rb.encodings.TransformerXL(HEADS, SIZE, dtype=dtype)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = (torch.randn(1, HEADS, tokens, SIZE, dtype=dtype, requires_grad=True) for tokens in (n, m, m))
    tensors = [q, k, v, encoding.projection, encoding.u, encoding.w]
    terms = encoding(rb.relations.Sequence()(n, m))
    ours = rb.relative_attention(q, k, v, terms, is_causal=causal, implementation=implementation)
    assert_same((ours, tensors), (transcription(*tensors, causal), tensors))
