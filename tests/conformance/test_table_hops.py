"""A table over hops against a loop over the pairs of a graph's nodes."""

from __future__ import annotations

import torch

import relbias as rb

HEADS, SIZE, LIMIT = 2, 4, 3


def code(hops: int) -> int:
    """Distances first, then "far", then "unreachable"."""
    if hops < 0:
        return LIMIT + 2
    return min(hops, LIMIT + 1)


def test_batch_of_graphs_with_padding(dtype, implementation, assert_same):
    generator = torch.Generator().manual_seed(0)
    distances = torch.randint(-1, 7, (2, 5, 5), generator=generator)
    table = torch.randn(HEADS, LIMIT + 3, generator=generator).to(dtype).requires_grad_()
    q, k, v = (torch.randn(2, HEADS, 5, SIZE, generator=generator).to(dtype).requires_grad_() for _ in range(3))
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    index = rb.relations.Hops(LIMIT)(distances)
    ours = rb.relative_attention(
        q, k, v, rb.Terms(b=table, index=index), key_padding_mask=padding, implementation=implementation
    )
    out = []
    for b in range(2):
        keys = [j for j in range(5) if not padding[b, j]]
        for h in range(HEADS):
            for i in range(5):
                bias = [table[h, code(int(distances[b, i, j]))] for j in keys]
                logits = [q[b, h, i] @ k[b, h, j] / SIZE**0.5 + s for j, s in zip(keys, bias, strict=True)]
                weights = torch.stack(logits).softmax(dim=0)
                out.append(weights @ v[b, h, keys])
    assert_same((ours, [q, k, v, table]), (torch.stack(out).view(2, HEADS, 5, SIZE), [q, k, v, table]))
