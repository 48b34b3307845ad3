"""Segments with a memory: equal to attention to the whole text inside the memory, and trained as Transformer-XL is."""

from __future__ import annotations

import pytest
import torch
from tests.models.sequences import NUM_TOKENS, every_encoding, language_model, random_tokens

import relbias as rb
from relbias.models import LanguageModel, SegmentMemory

DEPENDS_ON_PLACE = ("fire", "rope_dynamic", "rope_longrope")
"""Encodings of more than offsets: the memory's oldest token is their first."""


def by_segments(model, tokens, memory, sizes):
    return torch.cat([model(segment, memory=memory) for segment in tokens.split(sizes, dim=1)], dim=1)


@every_encoding()
def test_a_memory_of_the_whole_text(made):
    model, tokens = language_model(made), random_tokens(length=9)
    with torch.no_grad():
        out = by_segments(model, tokens, SegmentMemory(20), [3, 1, 3, 2])
        torch.testing.assert_close(out, model(tokens), rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", [[4] * 3, [1] * 12], ids=["segments", "tokens"])
@every_encoding(without=DEPENDS_ON_PLACE)
def test_a_window_inside_the_memory(made, sizes):
    """A token sees 5 others, which the memory holds: every token has the same logits as in the whole text."""
    model, tokens = language_model(made, window=6), random_tokens(length=12)
    memory = SegmentMemory(5)
    with torch.no_grad():
        out = by_segments(model, tokens, memory, sizes)
        torch.testing.assert_close(out, model(tokens), rtol=0, atol=1e-10)
    assert memory.seen == 12
    assert all(x.shape == (2, 5, 32) for x in memory.inputs)


@every_encoding(without=DEPENDS_ON_PLACE)
def test_segments_see_the_memory_and_no_farther(made):
    """Equal to the whole text under a mask, where each token sees its segment so far and the 3 tokens before it."""
    model, tokens, size, length = language_model(made), random_tokens(length=12), 4, 3
    places = torch.arange(12)
    allowed = places >= (places // size * size - length)[:, None]
    with torch.no_grad():
        x = model.embedding(tokens)
        for block in model.blocks:
            x = block(x, is_causal=True, attn_mask=allowed)
        expected = torch.nn.functional.linear(model.norm(x), model.embedding.weight)
        out = by_segments(model, tokens, SegmentMemory(length), size)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


def in_loops(model, first, second, length):
    """The logits of a second segment: each block over what it was given for both, detached for the first."""
    x, kept = model.embedding(first), []
    for block in model.blocks:
        kept.append(x.detach()[:, -length:])
        x = block(x, is_causal=True)
    x = model.embedding(second, past=first.shape[1])
    for block, before in zip(model.blocks, kept, strict=True):
        both = torch.cat((before, x), dim=1)
        allowed = torch.ones(both.shape[1], both.shape[1], dtype=torch.bool).tril()
        x = block(both, attn_mask=allowed)[:, before.shape[1] :]
    return model.head(x if model.norm is None else model.norm(x))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("encoding", ["transformer_xl", "rope", "cope", "wavlm", "learned"])
def test_gradients_are_those_of_the_paper(encoding, norm):
    torch.manual_seed(0)
    options = {"num_tokens": NUM_TOKENS, "dim": 32, "max_length": 16, "norm": norm, "tied": False}
    model = LanguageModel(encoding, **options, dtype=torch.float64)
    first, second = random_tokens(length=6).clamp(max=8), random_tokens(length=5, seed=3).clamp(max=8)
    first[:, -3:] = 9  # a token of the first segment alone
    memory = SegmentMemory(4)
    model(first, memory=memory)
    parameters = list(model.parameters())
    ours, expected = model(second, memory=memory), in_loops(model, first, second, 4)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)
    targets = torch.randn(ours.shape, dtype=torch.float64)
    gradients, others = (torch.autograd.grad((x * targets).sum(), parameters) for x in (ours, expected))
    for mine, theirs in zip(gradients, others, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    by_name = dict(zip((name for name, _ in model.named_parameters()), gradients, strict=True))
    assert by_name["embedding.weight"][9].abs().max() == 0  # nothing flows into the first segment
    assert by_name["embedding.weight"][:9].abs().max() > 0


def test_another_text_after_a_reset():
    model, tokens, memory = language_model(), random_tokens(), SegmentMemory(4)
    first = model(tokens, memory=memory)
    memory.reset()
    assert memory == SegmentMemory(4)
    assert torch.equal(model(tokens, memory=memory), first)


@pytest.mark.parametrize(
    ("tokens", "arguments", "message"),
    [
        (random_tokens(), {"key_padding_mask": torch.zeros(2, 9, dtype=torch.bool)}, "a memory is of whole segments"),
        (random_tokens(), {"document_ids": random_tokens()}, "a memory is of whole segments"),
        (random_tokens(), {"positions": torch.arange(9)}, "a memory is of whole segments"),
        (random_tokens(), {"caches": [rb.KVCache(), rb.KVCache()]}, "a memory is of whole segments"),
        (random_tokens(3), {}, r"memory must have shape \(3, M, 32\), got \(2, 4, 32\)"),
        (random_tokens() + 20, {}, "tokens must be from 0 to 10"),
    ],
)
def test_a_refused_segment_leaves_the_memory_as_it_was(tokens, arguments, message):
    model, memory = language_model(), SegmentMemory(4)
    model(random_tokens(), memory=memory)
    before = list(memory.inputs)
    with pytest.raises(ValueError, match=message) as caught:
        model(tokens, memory=memory, **arguments)
    assert "\n" not in str(caught.value)
    assert memory.seen == 9
    assert all(x is y for x, y in zip(memory.inputs, before, strict=True))


def test_learned_positions_end_with_the_text():
    model, memory = LanguageModel("learned", num_tokens=NUM_TOKENS, max_length=12), SegmentMemory(4)
    model(random_tokens(), memory=memory)
    with pytest.raises(ValueError, match="'learned' has 12 positions, got 18 tokens"):
        model(random_tokens(), memory=memory)
    with pytest.raises(ValueError, match="length must be an integer of at least 1"):
        SegmentMemory(0)
