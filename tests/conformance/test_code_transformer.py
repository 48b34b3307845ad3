"""The Code Transformer's relations, with bins of each sample, and the token distance against the formula in loops."""

from __future__ import annotations

import math

import pytest
import torch

import relbias as rb

BATCH, HEADS, N, SIZE, BINS = 2, 2, 5, 4, 4
DIM = HEADS * SIZE


def sinusoids(x: float) -> list[float]:
    angles = [x * math.exp(-math.log(10000.0) * 2 * t / DIM) for t in range(DIM // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_two_relations_and_the_token_distance(dtype, implementation, assert_same):
    torch.manual_seed(0)
    q, k, v = (torch.randn(BATCH, HEADS, N, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    relation = rb.relations.Bins(BINS)
    encoding = rb.create_encoding(
        {"paths": "code_transformer", "ancestors": "code_transformer", "tokens": "transformer_xl"},
        HEADS,
        SIZE,
        {"paths": relation, "ancestors": relation},
    ).to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    bins = {name: torch.randint(0, BINS, (BATCH, N, N)) for name in ("paths", "ancestors")}
    values = {"paths": torch.rand(BATCH, BINS) * 9, "ancestors": torch.randint(-9, 9, (BATCH, BINS))}
    copies = {name: p.detach().clone().requires_grad_() for name, p in encoding.named_parameters()}

    out = []
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(N):
                logits = []
                for j in range(N):
                    query = q[b, h, i]
                    total = (query + copies["encodings.tokens.u"][h]) @ k[b, h, j]
                    for name in ("paths", "ancestors", "tokens"):
                        x = float(i - j) if name == "tokens" else float(values[name][b, bins[name][b, i, j]])
                        key = copies[f"encodings.{name}.projection"][h] @ torch.tensor(sinusoids(x), dtype=dtype)
                        total = total + (query + copies[f"encodings.{name}.w"][h]) @ key
                    logits.append(total / math.sqrt(SIZE))
                out.append(torch.stack(logits).softmax(dim=0) @ v[b, h])
    theirs = torch.stack(out).view(BATCH, HEADS, N, SIZE)
    index = {name: relation(bins[name], values[name]) for name in bins} | {"tokens": rb.relations.Sequence()(N)}
    ours = rb.relative_attention(q, k, v, encoding(index), implementation=implementation)
    parameters = dict(encoding.named_parameters())
    assert_same((ours, [q, k, v, *parameters.values()]), (theirs, [q, k, v, *(copies[name] for name in parameters)]))
