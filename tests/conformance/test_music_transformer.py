"""Music Transformer's keys against the paper's skewing in torch, and against a loop over its equation."""

from __future__ import annotations

import pytest
import torch

import relbias as rb

HEADS, SIZE = 2, 6


def skewed(q, embeddings):
    """S_rel of the paper's figure 1: pad q E^T by a column on the left, reshape, drop the first row.

    Args:
        q: (B, H, L, D).
        embeddings: E, (H, L, D), of the offsets -L + 1 ... 0.

    Returns:
        (B, H, L, L); right at and below the diagonal alone.
    """
    products = q @ embeddings.mT
    batch, heads, length, _ = products.shape
    padded = torch.nn.functional.pad(products, (1, 0))
    return padded.reshape(batch, heads, length + 1, length)[:, :, 1:]


def by_loops(q, embeddings):
    """The same at and below the diagonal, one product at a time, zero above."""
    length = q.shape[2]
    rows = []
    for i in range(length):
        row = [q[:, :, i] @ torch.zeros(SIZE, dtype=q.dtype) for _ in range(length)]
        for j in range(i + 1):
            row[j] = torch.stack([q[:, h, i] @ embeddings[h, length - 1 - (i - j)] for h in range(HEADS)], dim=1)
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("theirs", [skewed, by_loops])
@pytest.mark.parametrize("longest", [7, 12])  # E of the longest context; a shorter one takes its end
def test_causal_attention(dtype, implementation, assert_same, theirs, longest):
    torch.manual_seed(0)
    length = 7
    encoding = rb.encodings.MusicTransformer(HEADS, SIZE, max_distance=longest - 1, dtype=dtype)
    torch.nn.init.normal_(encoding.keys)
    q, k, v = (torch.randn(2, HEADS, length, SIZE, dtype=dtype, requires_grad=True) for _ in range(3))
    terms = encoding(rb.relations.Sequence()(length))
    ours = rb.relative_attention(q, k, v, terms, is_causal=True, implementation=implementation)
    E = encoding.keys.detach().flip(1).requires_grad_()
    logits = (q @ k.mT + theirs(q, E[:, longest - length :])) / SIZE**0.5
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    expected = logits.masked_fill(future, -torch.inf).softmax(dim=-1) @ v
    assert_same(
        (ours, [q, k, v, encoding.keys]),
        (expected, [q, k, v, E]),
        [lambda g: g, lambda g: g, lambda g: g, lambda g: g.flip(1)],
    )


def test_the_last_queries_of_a_context(dtype, implementation):
    torch.manual_seed(0)
    encoding = rb.encodings.MusicTransformer(HEADS, SIZE, max_distance=8, dtype=dtype)
    torch.nn.init.normal_(encoding.keys)
    q, k, v = torch.randn(3, 2, HEADS, 9, SIZE, dtype=dtype)
    sequence = rb.relations.Sequence()
    arguments = {"is_causal": True, "implementation": implementation}
    whole = rb.relative_attention(q, k, v, encoding(sequence(9)), **arguments)
    last = rb.relative_attention(q[:, :, 6:], k, v, encoding(sequence(3, 9)), **arguments)
    torch.testing.assert_close(last, whole[:, :, 6:])


def test_above_the_diagonal_the_skewing_has_other_rows_and_ours_nothing():
    """Copied to a layer without a causal mask the skewing would be wrong; here a key after the query adds nothing."""
    encoding = rb.encodings.MusicTransformer(1, SIZE, max_distance=5, dtype=torch.float64)
    torch.nn.init.ones_(encoding.keys)
    q = torch.ones(1, 1, 6, SIZE, dtype=torch.float64)
    (entry,) = encoding(rb.relations.Sequence()(6)).entries
    products = (q @ entry.K.mT).gather(3, entry.index.codes())
    assert torch.equal(products, products.tril())
    theirs = skewed(q, encoding.keys.flip(1))
    assert torch.equal(products.tril(), theirs.tril())
    assert theirs.triu(2).any()
