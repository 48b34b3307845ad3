"""Decoding with a cache: step t equals the last row of a full forward on t tokens."""

from __future__ import annotations

import pytest
import torch

import relbias as rb

B, DIM, HEADS, LENGTH = 2, 32, 4, 7
ENCODINGS = ["none", "t5", "alibi", "shaw", "rope"]


@pytest.fixture(params=ENCODINGS)
def name(request):
    return request.param


def layer(name, **options):
    torch.manual_seed(0)
    attention = rb.RelativeAttention(DIM, HEADS, name, dtype=torch.float64, **options)
    for parameter in attention.encoding.parameters():
        torch.nn.init.normal_(parameter)  # large enough to show
    return attention


def tokens(batch: int = B, length: int = LENGTH) -> torch.Tensor:
    return torch.randn(batch, length, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def decode(attention, x, chunks, **per_token):
    """The outputs of x given in chunks; arguments per token are cut alongside."""
    cache, outs, start = rb.KVCache(), [], 0
    for size in chunks:
        part = slice(start, start + size)
        arguments = {
            key: value[:, part] if isinstance(value, torch.Tensor) else value for key, value in per_token.items()
        }
        outs.append(attention(x[:, part], cache=cache, is_causal=True, **arguments))
        start += size
        assert cache.length == start
    return torch.cat(outs, dim=1)


CHUNKS = [[1] * LENGTH, [3, 1, 1, 2], [LENGTH], [4, 3]]


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_steps_equal_the_last_row_of_a_full_forward(name, implementation, chunks, num_kv_heads):
    attention, x = layer(name, implementation=implementation, num_kv_heads=num_kv_heads), tokens()
    outs = decode(attention, x, chunks)
    for t in range(1, LENGTH + 1):
        full = attention(x[:, :t], is_causal=True)
        torch.testing.assert_close(outs[:, t - 1], full[:, -1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_documents_and_a_window(name, chunks):
    attention, x = layer(name), tokens()
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [3, 3, 4, 4, 4, 4, 5]])
    outs = decode(attention, x, chunks, document_ids=ids, window=(2, 0))
    full = attention(x, is_causal=True, document_ids=ids, window=(2, 0))
    torch.testing.assert_close(outs, full, rtol=1e-9, atol=1e-9)


def left_padded(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The padding, (B, N) bool, and the positions of the tokens, which count from each item's first real token."""
    slots = torch.arange(LENGTH)
    starts = LENGTH - torch.tensor(lengths)[:, None]
    return slots < starts, (slots - starts).clamp(min=0)


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_left_padding_equals_every_item_alone(name, implementation, chunks):
    attention, x, lengths = layer(name, implementation=implementation), tokens(), [7, 4]
    padding, positions = left_padded(lengths)
    outs = decode(attention, x, chunks, key_padding_mask=padding, positions=positions)
    full = attention(x, is_causal=True, key_padding_mask=padding, positions=positions)
    torch.testing.assert_close(outs, full, rtol=1e-9, atol=1e-9)
    for item, length in enumerate(lengths):
        alone = attention(x[item : item + 1, LENGTH - length :], is_causal=True)
        torch.testing.assert_close(outs[item, LENGTH - length :], alone[0], rtol=1e-9, atol=1e-9)
    assert outs.isfinite().all()  # padding queries too


def test_right_padding_equals_every_item_alone(name, implementation):
    attention, x = layer(name, implementation=implementation), tokens()
    padding = torch.arange(LENGTH) >= torch.tensor([7, 4])[:, None]
    full = attention(x, key_padding_mask=padding)
    torch.testing.assert_close(full[1, :4], attention(x[1:, :4])[0], rtol=1e-9, atol=1e-9)


def test_padding_that_starts_after_the_first_tokens():
    attention, x, cache = layer("t5"), tokens(), rb.KVCache()
    padding = torch.zeros(B, LENGTH, dtype=torch.bool)
    padding[1, 4] = True
    outs = [attention(x[:, :4], cache=cache, is_causal=True)]
    outs.append(attention(x[:, 4:6], cache=cache, is_causal=True, key_padding_mask=padding[:, 4:6]))
    outs.append(attention(x[:, 6:], cache=cache, is_causal=True))
    full = attention(x, is_causal=True, key_padding_mask=padding)
    torch.testing.assert_close(torch.cat(outs, dim=1), full, rtol=1e-9, atol=1e-9)


def test_positions_are_for_relations_and_masks_go_by_slot():
    """Positions that jump or repeat change the relations alone: causal and window still count slots."""
    attention, x = layer("rope"), tokens()
    positions = torch.tensor([[0, 0, 1, 50, 7, 7, 3], [9, 8, 7, 6, 5, 4, 3]])
    index = rb.relations.Sequence()(LENGTH, positions=positions)
    expected = attention(x, index=index, is_causal=True, window=(3, 0))
    torch.testing.assert_close(attention(x, positions=positions, is_causal=True, window=(3, 0)), expected)
    outs = decode(attention, x, [3, 1, 1, 2], positions=positions, window=(3, 0))
    torch.testing.assert_close(outs, expected, rtol=1e-9, atol=1e-9)
    last = attention(x, positions=positions[0], is_causal=True)  # one row of positions for all items
    both = attention(x, positions=positions[:1].expand(B, -1), is_causal=True)
    torch.testing.assert_close(last, both)


def test_the_cache_holds_unrotated_keys():
    attention, x, cache = layer("rope"), tokens(), rb.KVCache()
    attention(x, cache=cache, is_causal=True)
    keys = attention.k_proj(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    assert torch.equal(cache.k, keys)


def test_several_relations_with_a_cache():
    pairs = rb.relations.Pairs(3)
    torch.manual_seed(0)
    attention = rb.RelativeAttention(
        DIM, HEADS, {"offset": "t5", "kind": "table"}, {"kind": pairs}, dtype=torch.float64
    )
    kinds, x, cache = torch.randint(3, (B, LENGTH, LENGTH)), tokens(), rb.KVCache()
    full = attention(x, index={"kind": pairs(kinds)}, is_causal=True)
    attention(x[:, :-1], index={"kind": pairs(kinds[:, :-1, :-1])}, cache=cache, is_causal=True)
    last = attention(x[:, -1:], index={"kind": pairs(kinds[:, -1:])}, cache=cache, is_causal=True)
    torch.testing.assert_close(last[:, 0], full[:, -1], rtol=1e-9, atol=1e-9)


def test_reset_forgets_everything():
    attention, x, cache = layer("t5"), tokens(), rb.KVCache()
    ids = torch.zeros(B, LENGTH, dtype=torch.long)
    padding, positions = left_padded([7, 4])
    first = attention(x, cache=cache, key_padding_mask=padding, positions=positions, document_ids=ids)
    cache.reset()
    assert cache == rb.KVCache()
    again = attention(x, cache=cache, key_padding_mask=padding, positions=positions, document_ids=ids)
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"positions": torch.zeros(1, dtype=torch.long)}, "positions were given now and not before"),
        ({"positions": torch.zeros(2, dtype=torch.long)}, {}, "positions were given before and not now"),
        ({}, {"document_ids": torch.zeros(B, 1)}, "document_ids were given now and not before"),
        ({"document_ids": torch.zeros(B, 2)}, {}, "document_ids were given before and not now"),
        ({}, {"key_padding_mask": torch.zeros(3, 1, dtype=torch.bool)}, "key_padding_mask"),
        ({}, {"attn_mask": torch.zeros(9, 9)}, "attn_mask has shape"),
        ({}, {"index": rb.relations.Sequence()(9)}, r"the index is of \(9, 9\)"),
    ],
)
def test_a_refused_call_leaves_the_cache_as_it_was(first, second, message):
    attention, x, cache = layer("t5"), tokens(), rb.KVCache()
    attention(x[:, :2], cache=cache, is_causal=True, **first)
    with pytest.raises(ValueError, match=message):
        attention(x[:, 2:3], cache=cache, is_causal=True, **second)
    assert cache.length == 2


def test_another_batch_size():
    attention, cache = layer("t5"), rb.KVCache()
    attention(tokens(), cache=cache)
    with pytest.raises(ValueError, match=r"holds a batch of 2, got 3; call cache.reset\(\)"):
        attention(tokens(3), cache=cache)


def test_changing_the_callers_tensors_afterwards_changes_nothing():
    torch.manual_seed(0)
    attention = rb.RelativeAttention(16, 2, "rope")
    x = torch.randn(2, 3, 16)
    outs = []
    for in_place in (True, False):
        cache, positions, padding = (
            rb.KVCache(),
            torch.zeros(2, 1, dtype=torch.long),
            torch.zeros(2, 1, dtype=torch.bool),
        )
        for token in x.split(1, dim=1):
            y = attention(token, cache=cache, positions=positions, key_padding_mask=padding, is_causal=True)
            positions = positions.add_(1) if in_place else positions + 1
        outs.append(y)
    assert torch.equal(*outs)


def test_each_layer_needs_a_cache_of_its_own():
    cache = rb.KVCache()
    rb.RelativeAttention(16, 2)(torch.randn(1, 3, 16), cache=cache)
    with pytest.raises(ValueError, match="each layer needs a cache of its own"):
        rb.RelativeAttention(16, 4)(torch.randn(1, 3, 16), cache=cache)
    assert cache.length == 3
