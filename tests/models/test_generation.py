"""Generation: each step equals the whole forward, for every encoding that can; sampling; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.encodings.every import DIM, HEADS
from tests.models.sequences import ALL, NUM_TOKENS, every_encoding, language_model, random_tokens
from transformers import TopKLogitsWarper, TopPLogitsWarper

from relbias.models import EncoderDecoder, LanguageModel, generate, padded_positions
from relbias.models.sampling import sample

NO_CACHE = ("cope",)
"""Encodings that cannot decode with a cache."""
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def steps(model, tokens, prompt, padding=None):
    """The logits of a prompt and then of one token after another, with caches, (B, N, num_tokens)."""
    caches, outs = model.new_caches(), []
    positions = None if padding is None else padded_positions(padding)
    for start, end in [(0, prompt), *((t, t + 1) for t in range(prompt, tokens.shape[1]))]:
        given = {}
        if padding is not None:
            given = {"key_padding_mask": padding[:, start:end], "positions": positions[:, start:end]}
        outs.append(model(tokens[:, start:end], caches=caches, **given))
    return torch.cat(outs, dim=1)


@pytest.mark.parametrize(("dtype", "window"), [(torch.float64, None), (torch.float64, 4), (torch.float32, None)])
@every_encoding(without=NO_CACHE, variants=True)
def test_steps_equal_the_whole_forward(made, dtype, window):
    model, tokens = language_model(made, window=window).to(dtype), random_tokens()
    tolerance = TOLERANCE[dtype]
    with torch.no_grad():
        full = model(tokens)
        scale = full.abs().max().item()
        torch.testing.assert_close(steps(model, tokens, 3), full, rtol=0, atol=tolerance * scale)


@every_encoding(without=NO_CACHE)
def test_left_padded_steps_equal_every_item_alone(made):
    model, tokens, lengths = language_model(made), random_tokens(3), [9, 6, 4]
    padding = torch.arange(9) < 9 - torch.tensor(lengths)[:, None]
    with torch.no_grad():
        logits = steps(model, tokens, 6, padding)
        for item, length in enumerate(lengths):
            alone = model(tokens[item : item + 1, 9 - length :])
            torch.testing.assert_close(logits[item, 9 - length :], alone[0], rtol=0, atol=1e-10)


def greedy(model, tokens, count):
    """The likeliest continuation by whole forwards."""
    for _ in range(count):
        tokens = torch.cat((tokens, model(tokens)[:, -1:].argmax(dim=-1)), dim=1)
    return tokens


@every_encoding(without=NO_CACHE)
def test_generates_the_likeliest_tokens(made):
    model, prompt = language_model(made, window=6), random_tokens(length=4)
    with torch.no_grad():
        expected = greedy(model, prompt, 7)
    assert torch.equal(generate(model, prompt, 7), expected)
    assert len(expected[:, 4:].unique()) > 1  # not one token for ever


@every_encoding(without=NO_CACHE)
def test_generates_the_same_for_padded_items_as_for_each_alone(made):
    model, prompt, lengths = language_model(made), random_tokens(length=5), [5, 2]
    padding = torch.arange(5) < 5 - torch.tensor(lengths)[:, None]
    out = generate(model, prompt, 6, key_padding_mask=padding)
    for item, length in enumerate(lengths):
        alone = generate(model, prompt[item : item + 1, 5 - length :], 6)
        assert torch.equal(out[item, 5 - length :], alone[0])


@pytest.mark.parametrize("name", ["rope_dynamic", "rope_longrope"])
def test_rotations_of_the_length_go_step_by_step_beyond_it(name):
    """The inputs of a block are kept as earlier steps made them, and all its keys turn by the base of the step."""
    (made,) = [made for made in ALL if made.name == name]
    made = replace(made, options=made.options | {"original_max_position_embeddings": 4})
    model, tokens = language_model(made), random_tokens(length=9)
    kept = [[] for _ in model.blocks]
    outs = []
    with torch.no_grad():
        for t in range(9):
            x = model.embedding(tokens[:, t : t + 1])
            for inputs, block in zip(kept, model.blocks, strict=True):
                inputs.append(x)
                x = block(torch.cat(inputs, dim=1), is_causal=True)[:, -1:]
            outs.append(torch.nn.functional.linear(model.norm(x), model.embedding.weight))
        expected = torch.cat(outs, dim=1)
        torch.testing.assert_close(steps(model, tokens, 1), expected, rtol=0, atol=1e-10)
        full = model(tokens)
        torch.testing.assert_close(full[:, 0], model(tokens[:, :1])[:, 0], rtol=0, atol=1e-10)
    assert (full[:, -1] - expected[:, -1]).abs().max() > 1e-6


@pytest.mark.parametrize("encoding", ["cope", {"content": "cope", "offset": "alibi"}], ids=str)
def test_what_cannot_decode_is_refused_with_a_reason(encoding):
    model = LanguageModel(encoding, num_tokens=NUM_TOKENS)
    with pytest.raises(ValueError, match="which a cache does not keep: it cannot decode step by step") as caught:
        generate(model, random_tokens(), 3)
    assert "\n" not in str(caught.value)


def test_every_encoding_of_sequences_either_decodes_or_is_refused():
    assert set(NO_CACHE) <= {made.name for made in ALL}
    assert {made.name for made in ALL if made.encoding().makes_keys} == set(NO_CACHE)


def encoder_decoder(encoding="t5", **options):
    torch.manual_seed(0)
    sizes = {"num_tokens": NUM_TOKENS, "dim": DIM, "depth": 2, "num_heads": HEADS}
    model = EncoderDecoder(encoding, **{**sizes, **options}).double().eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and not name.startswith("embedding") and "encoding" not in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


@every_encoding(without=NO_CACHE)
def test_an_encoder_decoder_generates_the_likeliest_tokens(made):
    model, source = encoder_decoder(made.encoding(), depth=1), random_tokens(length=7, seed=2)
    padding = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    tokens = torch.zeros(2, 1, dtype=torch.long)
    out = generate(model, tokens, 4, source=source, source_padding_mask=padding)
    with torch.no_grad():
        caches, encoded = model.new_caches(), model.encode(source, padding)
        for t in range(5):
            full = model(source, out[:, : t + 1], source_padding_mask=padding)
            step = model.decode(out[:, t : t + 1], encoded, source_padding_mask=padding, caches=caches)
            torch.testing.assert_close(step[:, 0], full[:, -1], rtol=0, atol=1e-10)
            if t < 4:
                assert torch.equal(out[:, t + 1], full[:, -1].argmax(dim=-1))
        alone = generate(model, tokens[1:], 4, source=source[1:, :4])
    assert torch.equal(out[1], alone[0])


def test_keys_of_the_source_are_made_once():
    model, calls = encoder_decoder(), []
    for block in model.blocks:
        block.cross_attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    generate(model, torch.zeros(2, 1, dtype=torch.long), 5, source=random_tokens())
    assert len(calls) == len(model.blocks)


def test_items_end_with_the_stop_token():
    model, prompt = language_model(), random_tokens(6, 3)
    free = generate(model, prompt, 8)
    stop = int(free[0, 5])
    out = generate(model, prompt, 8, stop_token=stop)
    for row, other in zip(out, free, strict=True):
        ends = (other[3:] == stop).nonzero()
        end = 3 + int(ends[0]) + 1 if len(ends) else len(other)
        assert torch.equal(row[:end], other[:end])
        assert (row[end:] == stop).all()
    one = generate(model, prompt[:1], 8, stop_token=stop)
    assert one.shape == (1, 3 + [int(t) for t in free[0, 3:]].index(stop) + 1)


def test_a_model_in_training_generates_without_dropout_and_goes_on_in_training():
    torch.manual_seed(0)
    model = LanguageModel("rope", num_tokens=NUM_TOKENS, dropout=0.5)
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    prompt = random_tokens()
    assert torch.equal(generate(model, prompt, 5), generate(model, prompt, 5))
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ValueError, match="source"):
        generate(model, prompt, 5, source=prompt)
    assert [module.training for module in model.modules()] == before


def test_a_generator_repeats_what_was_drawn():
    model, prompt = language_model(), random_tokens(4)
    draw = lambda seed: generate(  # noqa: E731
        model, prompt, 12, temperature=1.5, generator=torch.Generator().manual_seed(seed)
    )
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(generate(model, prompt, 5, temperature=2.0, top_k=1), generate(model, prompt, 5))


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.8}, {"top_k": 4, "top_p": 0.7}, {"top_k": 99}]
)
def test_draws_as_often_as_transformers_says(options):
    options = {"temperature": 1.3, **options}
    logits = torch.randn(NUM_TOKENS, generator=torch.Generator().manual_seed(0)) * 1.5
    expected = logits[None] / options["temperature"]
    if "top_k" in options:
        expected = TopKLogitsWarper(options["top_k"])(None, expected)
    if "top_p" in options:
        expected = TopPLogitsWarper(options["top_p"])(None, expected)
    probabilities, count = expected.softmax(dim=-1)[0], 40_000
    drawn = sample(logits.expand(count, -1), **options, generator=torch.Generator().manual_seed(1))
    frequencies = drawn.bincount(minlength=NUM_TOKENS) / count
    deviations = (probabilities * (1 - probabilities) / count).sqrt()
    assert ((frequencies - probabilities).abs() <= 4 * deviations).all()


def test_equally_likely_tokens_beyond_top_k_are_left_out():
    drawn = sample(torch.zeros(500, 6), temperature=1.0, top_k=2, generator=torch.Generator().manual_seed(0))
    assert len(drawn.unique()) == 2


LONG = torch.zeros(2, 5, dtype=torch.long)
AT_THE_RIGHT = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 4}, "'learned' has 8 positions, got 9 tokens"),
        ({"max_new_tokens": -1}, "max_new_tokens must be"),
        ({"tokens": LONG[:, :0]}, "no tokens to continue"),
        ({"tokens": LONG + 20}, "tokens must be from 0 to 10, got 20"),
        ({"tokens": LONG.float()}, "tokens must be integers"),
        ({"temperature": -1.0}, "temperature must be a number of at least 0"),
        ({"top_k": 3}, "give a temperature above 0"),
        ({"top_p": 0.5}, "give a temperature above 0"),
        ({"temperature": 1.0, "top_k": 0}, "top_k must be"),
        ({"temperature": 1.0, "top_p": 1.5}, "top_p is a probability"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p must be a number above 0"),
        ({"stop_token": 11}, "stop_token must be from 0 to 10, got 11"),
        ({"source": LONG}, "a source is for an EncoderDecoder; LanguageModel"),
        ({"key_padding_mask": AT_THE_RIGHT}, "stands at the left"),
        ({"key_padding_mask": torch.ones(2, 5, dtype=torch.bool)}, "stands at the left"),
        ({"key_padding_mask": AT_THE_RIGHT[:, :3]}, r"shape \(2, 5\), got \(2, 3\)"),
        ({"key_padding_mask": LONG}, "boolean of shape"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refuses_before_anything_is_generated(arguments, message):
    model = LanguageModel("learned", num_tokens=NUM_TOKENS, max_length=8)
    calls = []
    model.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match=message) as caught:
        generate(**{"model": model, "tokens": LONG, "max_new_tokens": 2, **arguments})
    assert "\n" not in str(caught.value)
    assert not calls


def test_an_encoder_decoder_needs_a_source():
    with pytest.raises(ValueError, match="give source"):
        generate(encoder_decoder(), LONG, 2)
    with pytest.raises(ValueError, match="'learned' has 8 positions, got 9 tokens"):
        generate(encoder_decoder("learned", max_length=8), LONG, 4, source=LONG)


def test_as_many_as_there_are_positions():
    model = LanguageModel("learned", num_tokens=NUM_TOKENS, max_length=8)
    assert generate(model, LONG, 3).shape == (2, 8)
    assert torch.equal(generate(model, LONG, 0), LONG)
