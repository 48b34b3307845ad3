"""Shaw's vectors against Wav2Vec2-BERT of transformers (K) and a loop over the paper's formulas (K and V; grids)."""

from __future__ import annotations

import pytest
import torch
from transformers import Wav2Vec2BertConfig
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

import relbias as rb

DIM, HEADS = 24, 3
SIZE = DIM // HEADS


@pytest.mark.parametrize("limit", [0, 2, 30])
def test_wav2vec2_bert_layer(dtype, implementation, assert_same, copy_linear, limit):
    torch.manual_seed(0)
    config = Wav2Vec2BertConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=limit,
        right_max_position_embeddings=limit,
        attention_dropout=0.0,
    )
    config._attn_implementation = "sdpa"
    theirs = Wav2Vec2BertSelfAttention(config).to(dtype)
    ours = rb.RelativeAttention(
        DIM,
        HEADS,
        lambda heads, size, relation: rb.encodings.Shaw(heads, size, relation, max_distance=limit),
        implementation=implementation,
        dtype=dtype,
    )
    for name in ("q", "k", "v", "out"):
        layer = getattr(theirs, f"linear_{name}")
        copy_linear(getattr(ours, f"{name}_proj"), layer.weight, layer.bias)
    with torch.no_grad():
        ours.encoding.keys.copy_(theirs.distance_embedding.weight[None])
    x = torch.randn(2, 11, DIM, dtype=dtype, requires_grad=True)
    assert_same(
        # With one code alone K's gradient is zero: it shifts whole rows.
        (ours(x), [x, ours.q_proj.weight] + [ours.encoding.keys] * (limit > 0)),
        (theirs(x)[0], [x, theirs.linear_q.weight] + [theirs.distance_embedding.weight] * (limit > 0)),
        [lambda g: g, lambda g: g, lambda g: g[None]],
    )


def transcription(q, k, v, keys, values, row):
    """The paper's equations (3) and (4) one pair at a time; `row(i, j)` is the row of the tables."""
    batches, heads, n, size = q.shape
    m = k.shape[2]
    out = []
    for batch in range(batches):
        for h in range(heads):
            for i in range(n):
                e = [q[batch, h, i] @ (k[batch, h, j] + keys[row(i, j)]) / size**0.5 for j in range(m)]
                a = torch.stack(e).softmax(dim=0)
                terms = [a[j] * (v[batch, h, j] + values[row(i, j)]) for j in range(m)]
                out.append(torch.stack(terms).sum(dim=0))
    return torch.stack(out).view(batches, heads, n, size)


def grid_row(grid: rb.relations.Grid, limit: int):
    """The row of two tokens of a grid: patch offsets (dy, dx) clipped, then the kinds of pairs with prefix tokens."""
    p, side = grid.prefix_tokens, 2 * limit + 1

    def row(i: int, j: int) -> int:
        if i < p and j < p:
            return side * side + 2 * p + i * p + j
        if i < p:
            return side * side + i
        if j < p:
            return side * side + p + j
        (y_i, x_i), (y_j, x_j) = divmod(i - p, grid.width), divmod(j - p, grid.width)
        dy, dx = max(-limit, min(limit, y_i - y_j)), max(-limit, min(limit, x_i - x_j))
        return (dy + limit) * side + dx + limit

    return row


def _tensors(n: int, m: int, rows: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    return (
        tensor(1, 2, n, SIZE),
        tensor(1, 2, m, SIZE),
        tensor(1, 2, m, SIZE),
        tensor(1, rows, SIZE),
        tensor(1, rows, SIZE),
    )


def _ours(tensors, relation, index, limit):
    q, k, v, keys, values = tensors
    encoding = rb.encodings.Shaw(2, SIZE, relation, max_distance=limit, values=True)
    del encoding.keys, encoding.values
    encoding.keys, encoding.values = keys, values
    return rb.relative_attention(q, k, v, encoding(index))


@pytest.mark.parametrize(("n", "m"), [(5, 5), (2, 6)])
def test_sequence_with_keys_and_values(dtype, assert_same, n, m):
    limit = 2
    tensors = _tensors(n, m, 2 * limit + 1, dtype)
    q, k, v, keys, values = tensors

    def row(i: int, j: int) -> int:  # the queries are the last n of m positions
        return max(-limit, min(limit, j - (i + m - n))) + limit

    sequence = rb.relations.Sequence()
    assert_same(
        (_ours(tensors, sequence, sequence(n, m), limit), tensors),
        (transcription(q, k, v, keys[0], values[0], row), tensors),
    )


@pytest.mark.parametrize("prefix_tokens", [0, 2])
def test_grid_with_keys_and_values(dtype, assert_same, prefix_tokens):
    limit, grid = 1, rb.relations.Grid(2, 3, prefix_tokens)
    n = 6 + prefix_tokens
    tensors = _tensors(n, n, 9 + prefix_tokens * (prefix_tokens + 2), dtype)
    q, k, v, keys, values = tensors
    assert_same(
        (_ours(tensors, grid, grid(), limit), tensors),
        (transcription(q, k, v, keys[0], values[0], grid_row(grid, limit)), tensors),
    )
