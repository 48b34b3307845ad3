"""AST-Trans against a loop over the paper's formula, on two trees, with ancestors and siblings farther apart than K."""

from __future__ import annotations

import pytest
import torch

import relbias as rb

HEADS, SIZE, LIMIT = 3, 4, 1
#      0
#    / | \
#   1  2  3
#   |
#   4
#   |
#   5
PARENTS = [[-1, 0, 0, 0, 1, 4], [5, 5, 5, 0, 3, -1]]
N = 6


def ancestor(parents: list[int], i: int, j: int) -> int | None:
    """How far j is below i (above: negative)."""
    for low, high, sign in ((j, i, 1), (i, j, -1)):
        steps = 0
        while low not in (high, -1):
            low, steps = parents[low], steps + 1
        if low == high:
            return sign * steps
    return None


def sibling(parents: list[int], i: int, j: int) -> int | None:
    """How far j comes after i among the children of their parent."""
    if i == j:
        return 0
    if parents[i] != parents[j]:
        return None
    between = [c for c in range(min(i, j), max(i, j)) if parents[c] == parents[i]]
    return len(between) if j > i else -len(between)


@pytest.mark.parametrize("drop_far", [False, True])
def test_equals_the_papers_formula(dtype, assert_same, drop_far):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, HEADS, N, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    pairs = rb.relations.Pairs(2 * LIMIT + 2)
    groups = rb.relations.HeadGroups((pairs, pairs), heads=(1, 2))
    encoding = rb.encodings.ASTTrans(HEADS, SIZE, groups, dtype=dtype)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    tables = [p.detach().clone().requires_grad_() for p in encoding.parameters()]
    for_query, for_key, for_value = tables
    out = []
    for b in range(2):
        for h in range(HEADS):
            relation = ancestor if h == 0 else sibling
            for i in range(N):
                logits, values = [], []
                for j in range(N):
                    distance = relation(PARENTS[b], i, j)
                    if distance is None or (drop_far and abs(distance) > LIMIT):
                        continue
                    r = max(-LIMIT, min(LIMIT, distance)) + LIMIT
                    content, p2c = q[b, h, i] @ k[b, h, j], k[b, h, j] @ for_key[h, r]
                    logits.append((content + q[b, h, i] @ for_query[h, r] + p2c) / (3 * SIZE) ** 0.5)
                    values.append(v[b, h, j] + for_value[h, r])
                out.append(torch.stack(logits).softmax(dim=0) @ torch.stack(values))
    theirs = torch.stack(out).view(2, HEADS, N, SIZE)
    parents = torch.tensor(PARENTS)
    index = groups(
        rb.relations.ancestor_codes(parents, LIMIT, drop_far), rb.relations.sibling_codes(parents, LIMIT, drop_far)
    )
    ours = rb.relative_attention(q, k, v, encoding(index), scale=encoding.paper_scale)
    assert_same((ours, [q, k, v, *encoding.parameters()]), (theirs, [q, k, v, *tables]))
