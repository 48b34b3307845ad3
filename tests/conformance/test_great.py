"""GREAT against a loop over its sparse list of edges, whose numbers a scatter adds up."""

from __future__ import annotations

import pytest
import torch

import relbias as rb

BATCH, HEADS, N, SIZE, TYPES = 2, 2, 5, 4, 10


@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_equals_the_scattered_edges(dtype, implementation, assert_same):
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    q, k, v = (tensor(BATCH, HEADS, N, SIZE) for _ in range(3))
    embeddings, projection = tensor(TYPES, SIZE), tensor(SIZE)
    # (type, item, query, key); three edges join query 1 and key 3 of item 0, in one direction only.
    edges = [(0, 0, 1, 3), (4, 0, 1, 3), (9, 0, 1, 3), (5, 0, 2, 2), (9, 1, 0, 4), (3, 1, 4, 0), (1, 1, 4, 1)]

    biases = torch.zeros(BATCH, N, N, dtype=dtype)
    for kind, item, query, key in edges:
        number = embeddings[kind] @ projection
        place = torch.zeros(BATCH, N, N, dtype=dtype)
        place[item, query, key] = 1.0
        biases = biases + place * number
    logits = (q @ k.mT + biases[:, None] * k.sum(dim=-1)[:, :, None, :]) / SIZE**0.5
    theirs = logits.softmax(dim=-1) @ v

    relation = rb.relations.EdgeSets(TYPES)
    encoding = rb.encodings.GREAT(HEADS, SIZE, relation)
    del encoding.embeddings, encoding.projection
    encoding.embeddings, encoding.projection = embeddings, projection
    graphs = [[(kind, i, j) for kind, b, i, j in edges if b == item] for item in range(BATCH)]
    index = relation.from_edges(
        [(torch.tensor([e[1:] for e in g]).T, torch.tensor([e[0] for e in g])) for g in graphs], num_tokens=N
    )
    tensors = [q, k, v, embeddings, projection]
    ours = rb.relative_attention(q, k, v, encoding(index), implementation=implementation)
    assert_same((ours, tensors), (theirs, tensors))
