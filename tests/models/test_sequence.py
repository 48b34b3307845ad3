"""The language model: what it computes, what it does not see, documents, and what it refuses."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tests.models.sequences import NUM_TOKENS, every_encoding, language_model, random_tokens
from torch.nn import functional as F

import relbias as rb
from relbias.encodings import Fire, create_encoding
from relbias.models import LanguageModel, SequenceEncoder, document_positions, padded_positions


def written_down(model, tokens, window=None):
    """The logits of one item, (N, num_tokens), of a model with ALiBi, in loops."""
    dim, heads, n = 32, 4, len(tokens)
    x = torch.stack([model.embedding.weight[token] * dim**0.5 for token in tokens])
    for block in model.blocks:
        attention, post = block.attention, block.norm == "post"
        y = x if post else block.norm1(x)
        q, k, v = attention.q_proj(y), attention.k_proj(y), attention.v_proj(y)
        rows = []
        for i in range(n):
            parts = []
            for h in range(heads):
                kv = h // (heads // attention.num_kv_heads)
                first = 0 if window is None else max(0, i - window + 1)
                logits = torch.stack(
                    [
                        q[i, 8 * h : 8 * h + 8] @ k[j, 8 * kv : 8 * kv + 8] / 8**0.5 - 2.0 ** (-2 * (h + 1)) * (i - j)
                        for j in range(first, i + 1)
                    ]
                )
                parts.append(logits.softmax(0) @ v[first : i + 1, 8 * kv : 8 * kv + 8])
            rows.append(torch.cat(parts))
        x = x + attention.out_proj(torch.stack(rows))
        x = block.norm1(x) if post else x
        x = x + block.mlp(x if post else block.norm2(x))
        x = block.norm2(x) if post else x
    x = x if model.norm is None else model.norm(x)
    return x @ model.embedding.weight.T if model.head is None else model.head(x)


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "post"}, {"tied": False}, {"num_kv_heads": 2}, {"window": 3}, {"num_kv_heads": 1, "norm": "post"}],
    ids=str,
)
def test_equals_the_model_written_down(options):
    torch.manual_seed(0)
    model = LanguageModel("alibi", num_tokens=NUM_TOKENS, dim=32, depth=2, num_heads=4, dtype=torch.float64, **options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    tokens = random_tokens()
    expected = torch.stack([written_down(model, item, options.get("window")) for item in tokens])
    torch.testing.assert_close(model(tokens), expected, rtol=1e-10, atol=1e-10)


@every_encoding()
def test_every_encoding_trains(made):
    model, tokens = language_model(made), random_tokens(length=6)
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    parameters = list(model.embedding.parameters()) + [
        p for b in model.blocks for p in b.attention.encoding.parameters()
    ]
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in parameters)


@pytest.mark.parametrize(("implementation", "window"), [("folded", None), ("blockwise", None), ("blockwise", 4)])
@every_encoding(variants=True)
def test_no_leak_from_the_future(made, implementation, window):
    """Another token at t changes nothing before t, to the last bit, by any implementation that "auto" may pick."""
    length = 24
    places = [1, length // 2, length - 1]
    model, tokens = language_model(made, window=window), random_tokens(1, length).repeat(len(places), 1)
    for block in model.blocks:
        block.attention.implementation = implementation
    other = tokens.clone()
    for item, t in enumerate(places):
        other[item, t] = (other[item, t] + 1) % NUM_TOKENS
    try:
        with torch.no_grad():
            logits, changed = model(tokens), model(other)
    except ValueError as error:
        if implementation == "blockwise" or "cannot compute this" not in str(error):
            raise
        return
    for item, t in enumerate(places):
        assert torch.equal(changed[item, :t], logits[item, :t])
        assert not torch.equal(changed[item, t], logits[item, t])


@every_encoding()
def test_packed_documents_equal_each_alone(made):
    model, tokens = language_model(made), random_tokens(length=9)
    ids = torch.tensor([[4, 4, 4, 4, 1, 1, 1, 9, 9], [0] * 2 + [1] * 7])
    with torch.no_grad():
        packed = model(tokens, document_ids=ids)
        for item, row in zip(range(2), ids, strict=True):
            for number in row.unique():
                alone = model(tokens[item : item + 1, row == number])
                torch.testing.assert_close(packed[item, row == number], alone[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [LanguageModel, SequenceEncoder])
def test_documents_begin_anew_where_places_matter(kind):
    """Beyond FIRE's threshold of three tokens a bias depends on the places and not on their difference alone."""
    torch.manual_seed(0)
    model = kind(partial(Fire, threshold=3.0), num_tokens=NUM_TOKENS, dim=16, depth=2, dtype=torch.float64)
    tokens = random_tokens(1, length=12)
    packed = model(tokens, document_ids=torch.tensor([[0] * 5 + [1] * 7]))
    torch.testing.assert_close(packed[:, 5:], model(tokens[:, 5:]), rtol=0, atol=1e-10)


@every_encoding()
def test_left_padding_equals_every_item_alone(made):
    model, tokens, lengths = language_model(made), random_tokens(length=9), [9, 4]
    padding = torch.arange(9) < 9 - torch.tensor(lengths)[:, None]
    with torch.no_grad():
        logits = model(tokens, key_padding_mask=padding, positions=padded_positions(padding))
        for item, length in enumerate(lengths):
            alone = model(tokens[item : item + 1, 9 - length :])
            torch.testing.assert_close(logits[item, 9 - length :], alone[0], rtol=0, atol=1e-10)
    assert logits.isfinite().all()


def test_positions_of_documents():
    ids = torch.tensor([[3, 3, 5, 3, 3, 3], [0, 0, 0, 0, 0, 0]])  # a number that comes again is another document
    assert document_positions(ids).tolist() == [[0, 1, 0, 0, 1, 2], [0, 1, 2, 3, 4, 5]]
    assert document_positions(ids[:, :0]).shape == (2, 0)
    with pytest.raises(ValueError, match=r"\(B, N\), got \(6,\)"):
        document_positions(ids[0])
    with pytest.raises(ValueError, match="boolean of shape"):
        padded_positions(ids)


@every_encoding()
def test_no_tokens(made):
    assert language_model(made)(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, NUM_TOKENS)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int16])
def test_bytes_and_other_integers(dtype):
    model, tokens = language_model(), random_tokens()
    assert torch.equal(model(tokens.to(dtype)), model(tokens))


def learned(**options):
    return LanguageModel("learned", num_tokens=NUM_TOKENS, max_length=6, **options)


@pytest.mark.parametrize(
    ("tokens", "arguments", "message"),
    [
        (torch.tensor([[0, 11]]), {}, "tokens must be from 0 to 10, got 11"),
        (torch.tensor([[0, -1]]), {}, "tokens must be from 0 to 10, got -1"),
        (torch.zeros(1, 3), {}, "tokens must be integers, got torch.float32"),
        (torch.zeros(1, 3, dtype=torch.bool), {}, "tokens must be integers, got torch.bool"),
        (torch.zeros(3, dtype=torch.long), {}, r"shape \(B, N\), got shape \(3,\)"),
        ([[1, 2]], {}, r"shape \(B, N\), got a list"),
        (torch.zeros(1, 7, dtype=torch.long), {}, "'learned' has 6 positions, got 7 tokens"),
        (torch.zeros(1, 2, dtype=torch.long), {"positions": torch.tensor([3, 6])}, "positions 0 to 5, got 3 to 6"),
        (torch.zeros(1, 7, dtype=torch.long), {"positions": torch.arange(7)}, "6 positions, got 7 tokens"),
        (torch.zeros(1, 2, dtype=torch.long), {"caches": []}, "one for each of 3 blocks, got 0"),
        (torch.zeros(1, 2, dtype=torch.long), {"document_ids": torch.zeros(2)}, "document_ids must have shape"),
    ],
    ids=str,
)
def test_refuses_input_that_does_not_fit(tokens, arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        learned()(tokens, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_tokens": 0}, "num_tokens must be an integer of at least 1"),
        ({"depth": 0}, "depth must be"),
        ({"window": 0}, "window must be"),
        ({"dim": 30}, "multiple of num_heads"),
        ({"num_kv_heads": 3}, "multiple of num_kv_heads"),
        ({"norm": "rms"}, '"pre" or "post"'),
        ({"max_length": 0}, "max_length must be"),
        ({"encoding": "learned"}, "needs max_length"),
        ({"encoding": "alibbi"}, "did you mean 'alibi'"),
        ({"encoding": "table"}, r"Sequence\(max_distance=128\)"),
        ({"encoding": "rope_axial"}, "takes the relation Grid"),
    ],
    ids=str,
)
def test_refuses_what_does_not_fit(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        LanguageModel(**{"encoding": "none", "num_tokens": 5, **options})
    assert "\n" not in str(caught.value)


def test_positions_at_the_input_are_built_once():
    model = learned()
    assert model.embedding.position.table.shape == (6, 96)
    assert all(block.attention.encoding.name == "none" for block in model.blocks)
    model = LanguageModel("table", num_tokens=5, relation=rb.relations.Sequence(max_distance=3))
    assert model.blocks[0].attention.encoding is not model.blocks[1].attention.encoding
    shared = create_encoding("t5", 4, 24)
    model = LanguageModel(shared, num_tokens=5)
    assert all(block.attention.encoding is shared for block in model.blocks)


@pytest.mark.parametrize("encoding", ["shaw", "learned", "sinusoidal", "rope"])
def test_meta_device_then_to_empty(encoding):
    options = {"num_tokens": 5, "max_length": 8, "dtype": torch.float64, "tied": False}
    model = LanguageModel(encoding, **options, device="meta")
    assert all(parameter.is_meta and parameter.dtype == torch.float64 for parameter in model.parameters())
    model.to_empty(device="cpu")
    other = LanguageModel(encoding, **options)
    for fresh in (model, other):
        torch.manual_seed(1)
        fresh.reset_parameters()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_start_predicts_about_evenly():
    torch.manual_seed(0)
    for options in ({}, {"norm": "post"}, {"tied": False}):
        model = LanguageModel("alibi", num_tokens=65, **options)
        logits = model(torch.randint(65, (4, 32)))
        loss = F.cross_entropy(logits.flatten(0, 1), torch.randint(65, (128,)))
        assert 4.0 < loss.item() < 4.8  # ln 65 = 4.17


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    model, tokens = LanguageModel("rope", num_tokens=NUM_TOKENS, dropout=0.5), random_tokens()
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize("encoding", ["t5", "rope", "alibi", "learned"])
def test_bfloat16_autocast(encoding):
    torch.manual_seed(0)
    model, tokens = LanguageModel(encoding, num_tokens=NUM_TOKENS, max_length=16), random_tokens()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
    loss.backward()
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), model(tokens), rtol=0.05, atol=0.1)
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_compiles_as_one_graph():
    torch.manual_seed(0)
    model, tokens = LanguageModel("learned", num_tokens=NUM_TOKENS, max_length=16, depth=1).eval(), random_tokens()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tokens), model(tokens))


def test_exports_with_any_length():
    model, tokens = language_model(), random_tokens()
    shapes = {"tokens": {1: torch.export.Dim("length", min=2, max=100)}}
    exported = torch.export.export(model, (tokens,), dynamic_shapes=shapes, strict=False).module()
    longer = random_tokens(length=17)
    torch.testing.assert_close(exported(longer), model(longer))
