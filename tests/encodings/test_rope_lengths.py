"""Rotations that depend on the length, dynamic NTK and LongRoPE: beyond that of training, and with a cache."""

from __future__ import annotations

import pytest
import torch

import relbias as rb
from relbias.encodings import DynamicNTKRoPE, LongRoPE

HEADS, SIZE, DIM, LENGTH, TRAINED = 2, 8, 16, 9, 4
OPTIONS = {
    DynamicNTKRoPE: {"factor": 3.0},
    LongRoPE: {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 3.0, 5.0, 9.0], "factor": 3.0},
}

classes = pytest.mark.parametrize("cls", OPTIONS)


def make(cls, trained: int = TRAINED):
    return lambda heads, size, relation: cls(
        heads, size, relation, original_max_position_embeddings=trained, base=50.0, **OPTIONS[cls]
    )


def layer(cls, trained: int = TRAINED, seed: int = 0) -> rb.RelativeAttention:
    torch.manual_seed(seed)
    attention = rb.RelativeAttention(DIM, HEADS, make(cls, trained), dtype=torch.float64)
    for projection in (attention.q_proj, attention.k_proj):
        torch.nn.init.normal_(projection.weight, std=0.5)  # so large that angles matter, and no weight is 1
    return attention


def tokens(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, LENGTH, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)


def turned(cls, x: torch.Tensor, positions: list[int], length: int) -> torch.Tensor:
    """X, (B, H, N, D), turned by the frequencies of a sequence of so many tokens, written without the library."""
    out = x.clone()
    for p in range(SIZE // 2):
        if cls is DynamicNTKRoPE:
            growth = (3.0 * length / TRAINED - 2.0) ** (SIZE / (SIZE - 2)) if length > TRAINED else 1.0
            frequency, amplitude = (50.0 * growth) ** (-2 * p / SIZE), 1.0
        else:
            factors = OPTIONS[cls]["long_factor" if length > TRAINED else "short_factor"]
            frequency = 50.0 ** (-2 * p / SIZE) / factors[p]
            amplitude = (1 + torch.tensor(3.0).double().log() / torch.tensor(4.0).double().log()).sqrt()
        angles = torch.tensor(positions, dtype=torch.float64) * frequency
        a, b = x[..., p], x[..., p + SIZE // 2]
        out[..., p] = amplitude * (a * angles.cos() - b * angles.sin())
        out[..., p + SIZE // 2] = amplitude * (a * angles.sin() + b * angles.cos())
    return out


def last_row(attention, cls, q, keys, values, length: int) -> torch.Tensor:
    """The output for the last token, (B, dim), from its q and the unturned keys so far."""
    q, k = turned(cls, q, [length - 1], length), turned(cls, keys, list(range(length)), length)
    weights = (q @ k.mT / SIZE**0.5).softmax(dim=-1)
    return attention.out_proj((weights @ values).transpose(1, 2).flatten(2))[:, 0]


@classes
@pytest.mark.parametrize("chunks", [[1] * LENGTH, [3, 1, 1, 2, 2], [2, 7]], ids=str)
def test_steps_of_a_layer_equal_the_last_row_of_a_full_forward(cls, chunks):
    attention, x, cache, start = layer(cls), tokens(), rb.KVCache(), 0
    for size in chunks:
        y = attention(x[:, start : start + size], cache=cache, is_causal=True)
        start += size
        full = attention(x[:, :start], is_causal=True)
        torch.testing.assert_close(y[:, -1], full[:, -1], rtol=1e-10, atol=1e-10)


@classes
def test_keys_turned_when_they_were_appended_would_be_wrong(cls):
    """What a cache of turned keys gives after the base has changed is another output, so the test above sees it."""
    attention, x = layer(cls), tokens()
    q, k, v = (heads(projection(x)) for projection in (attention.q_proj, attention.k_proj, attention.v_proj))
    right = last_row(attention, cls, q[:, :, -1:], k, v, LENGTH)
    torch.testing.assert_close(attention(x, is_causal=True)[:, -1], right, rtol=1e-10, atol=1e-10)
    early = torch.cat([turned(cls, k[:, :, t : t + 1], [t], t + 1) for t in range(LENGTH)], dim=2)
    weights = (turned(cls, q[:, :, -1:], [LENGTH - 1], LENGTH) @ early.mT / SIZE**0.5).softmax(dim=-1)
    wrong = attention.out_proj((weights @ v).transpose(1, 2).flatten(2))[:, 0]
    assert (wrong - right).abs().max() > 0.01


def decode(layers, x, caches) -> torch.Tensor:
    """The outputs of a residual stack, token by token."""
    outs = []
    for token in x.split(1, dim=1):
        for attention, cache in zip(layers, caches, strict=True):
            token = token + attention(token, cache=cache, is_causal=True)
        outs.append(token)
    return torch.cat(outs, dim=1)


@classes
def test_steps_of_a_model_within_the_length_of_training(cls):
    layers, x = [layer(cls, LENGTH, seed) for seed in (0, 1)], tokens()
    outs = decode(layers, x, [rb.KVCache(), rb.KVCache()])
    for t in range(1, LENGTH + 1):
        full = x[:, :t]
        for attention in layers:
            full = full + attention(full, is_causal=True)
        torch.testing.assert_close(outs[:, t - 1], full[:, -1], rtol=1e-10, atol=1e-10)


@classes
def test_steps_of_a_model_beyond_it_equal_a_loop_over_steps(cls):
    """The inputs of the second layer's earlier keys were made under the earlier base, in the loop as in the caches."""
    layers, x = [layer(cls, TRAINED, seed) for seed in (0, 1)], tokens()
    outs = decode(layers, x, [rb.KVCache(), rb.KVCache()])
    kept = [([], []) for _ in layers]
    for t in range(LENGTH):
        token = x[:, t : t + 1]
        for attention, (keys, values) in zip(layers, kept, strict=True):
            keys.append(heads(attention.k_proj(token)))
            values.append(heads(attention.v_proj(token)))
            q = heads(attention.q_proj(token))
            row = last_row(attention, cls, q, torch.cat(keys, dim=2), torch.cat(values, dim=2), t + 1)
            token = token + row[:, None]
        torch.testing.assert_close(outs[:, t], token[:, 0], rtol=1e-9, atol=1e-9)
    full = x
    for attention in layers:
        full = full + attention(full, is_causal=True)
    assert (full[:, -1] - outs[:, -1]).abs().max() > 1e-3  # why the claim is one of layers


@classes
def test_every_item_turns_by_its_own_length(cls):
    """Left padding: an item in a batch equals the item alone, whatever the others' lengths are."""
    attention, x, lengths = layer(cls), tokens(), [LENGTH, 3]
    slots = torch.arange(LENGTH)
    starts = LENGTH - torch.tensor(lengths)[:, None]
    padding, positions = slots < starts, (slots - starts).clamp(min=0)
    full = attention(x, is_causal=True, key_padding_mask=padding, positions=positions)
    cache, outs = rb.KVCache(), []
    for t in range(LENGTH):
        part = {"key_padding_mask": padding[:, t : t + 1], "positions": positions[:, t : t + 1]}
        outs.append(attention(x[:, t : t + 1], cache=cache, is_causal=True, **part))
    for item, length in enumerate(lengths):
        alone = attention(x[item : item + 1, LENGTH - length :], is_causal=True)
        torch.testing.assert_close(full[item, LENGTH - length :], alone[0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(outs[-1][item, 0], alone[0, -1], rtol=1e-10, atol=1e-10)


@classes
def test_the_length_is_that_of_the_keys(cls):
    encoding, relation = make(cls)(HEADS, SIZE, rb.relations.Sequence()), rb.relations.Sequence()
    rotation = encoding(relation(LENGTH)).rotation
    assert torch.equal(encoding(relation(1, LENGTH)).rotation.q_angles, rotation.q_angles[:, :, -1:])
    assert torch.equal(encoding(relation(LENGTH).T).rotation.k_angles, -rotation.k_angles)
    few = encoding(relation(2, positions=torch.tensor([0, LENGTH - 1]))).rotation  # two keys, the last one far away
    assert torch.equal(few.k_angles, rotation.k_angles[:, :, [0, LENGTH - 1]])
    nothing = torch.zeros(0, dtype=torch.long)
    assert encoding(relation(0, positions=nothing)).rotation.k_angles.shape == (1, 1, 0, SIZE // 2)


@classes
def test_one_exported_program_serves_both_sides_of_the_length_of_training(cls):
    attention, x = layer(cls).eval(), tokens()
    short = x[:, :3].contiguous()  # with strides that follow from its sizes
    length = torch.export.Dim("length", min=2, max=100)
    exported = torch.export.export(attention, (short,), dynamic_shapes={"x": {1: length}}, strict=False).module()
    for n in (3, TRAINED, LENGTH):
        torch.testing.assert_close(exported(x[:, :n]), attention(x[:, :n]))
