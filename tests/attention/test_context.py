"""Keys of another sequence, kept in a cache, and of a memory before the tokens."""

from __future__ import annotations

import pytest
import torch
from tests.encodings.every import every

import relbias as rb
from relbias.relations import Sequence

DIM, HEADS = 16, 2


def layer(encoding="none", **options):
    torch.manual_seed(0)
    return rb.RelativeAttention(DIM, HEADS, encoding, dtype=torch.float64, **options)


def tokens(length, seed=1):
    return torch.randn(2, length, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_kv_heads", [2, 1])
def test_a_cache_keeps_the_keys_of_a_context(num_kv_heads):
    attention, x, context, cache = layer(num_kv_heads=num_kv_heads), tokens(5), tokens(7, 2), rb.KVCache()
    padding = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    expected = attention(x, context, key_padding_mask=padding)
    calls = []
    attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    for start, end in ((0, 2), (2, 3), (3, 5)):
        y = attention(x[:, start:end], context, key_padding_mask=padding, cache=cache)
        torch.testing.assert_close(y, expected[:, start:end], rtol=0, atol=1e-12)
        assert cache.length == 7
    assert len(calls) == 1


def test_a_relation_to_a_cached_context():
    attention, x, context, cache = layer("t5"), tokens(5), tokens(7, 2), rb.KVCache()
    queries, keys, relation = torch.arange(5), torch.arange(7), Sequence()
    expected = attention(x, context, index=relation(5, 7, queries, keys))
    for t in range(5):
        y = attention(x[:, t : t + 1], context, index=relation(1, 7, queries[t : t + 1], keys), cache=cache)
        torch.testing.assert_close(y, expected[:, t : t + 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("context", [tokens(6, 2), tokens(7, 2)[:1].expand(3, -1, -1)])
def test_another_context_needs_another_cache(context):
    attention, x, cache = layer(), tokens(3), rb.KVCache()
    attention(x, tokens(7, 2), cache=cache)
    with pytest.raises(ValueError, match=r"holds a context of shape \(2, 7, 16\).*call cache.reset\(\)"):
        attention(x[:1].expand(len(context), -1, -1), context, cache=cache)
    assert cache.length == 7


@every(Sequence, variants=False)
@pytest.mark.parametrize("implementation", ["folded", "blockwise", "reference"])
def test_a_memory_is_more_keys(made, implementation):
    attention, x = made.layer(implementation="reference"), made.input(9)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, :2] = True
    with torch.no_grad():
        expected = attention(x, is_causal=True, window=(5, 0), key_padding_mask=padding)[:, 4:]
        attention.implementation = implementation
        try:
            out = attention(x[:, 4:], memory=x[:, :4], is_causal=True, window=(5, 0), key_padding_mask=padding)
        except ValueError as error:
            if implementation == "reference" or "cannot compute this" not in str(error):
                raise
            return
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


X, IDS = tokens(3), torch.zeros(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": X, "memory": X}, "are of self-attention"),
        ({"context": X, "positions": IDS}, "are of self-attention"),
        ({"context": X, "document_ids": IDS}, "are of self-attention"),
        ({"context": X[:1]}, r"context must have shape \(2, M, 16\), got \(1, 3, 16\)"),
        ({"memory": X[..., :8]}, r"memory must have shape \(2, M, 16\), got \(2, 3, 8\)"),
        ({"memory": X[0]}, "memory must have shape"),
        ({"memory": X, "cache": rb.KVCache()}, "one after another"),
        ({"memory": X, "positions": IDS}, "one after another"),
        ({"memory": X, "document_ids": IDS}, "one after another"),
    ],
)
def test_refuses_what_does_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        layer()(X, **arguments)
    assert "\n" not in str(caught.value)
