"""The encoder and the encoder-decoder: against torch's own, padding, documents, windows, and documents in chunks."""

from __future__ import annotations

import pytest
import torch
from tests.encodings.every import DIM, HEADS
from tests.models.sequences import NUM_TOKENS, every_encoding, random_tokens
from torch import nn
from torch.nn import functional as F

from relbias.models import EncoderDecoder, SequenceEncoder, TransformerBlock, encode_in_chunks

SIZES = {"num_tokens": NUM_TOKENS, "dim": DIM, "depth": 2, "num_heads": HEADS}


def make(model, encoding, **options):
    torch.manual_seed(0)
    made = model(encoding, **{**SIZES, **options}).double().eval()
    for name, parameter in made.named_parameters():
        if not ("encoding" in name or "embedding" in name):
            nn.init.normal_(parameter, std=0.4)
    return made


def copy_attention(theirs: nn.MultiheadAttention, ours):
    with torch.no_grad():
        for part in ("weight", "bias"):
            rows = [getattr(layer, part) for layer in (ours.q_proj, ours.k_proj, ours.v_proj)]
            getattr(theirs, f"in_proj_{part}").copy_(torch.cat(rows))
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def copy_layer(theirs, block):
    copy_attention(theirs.self_attn, block.attention)
    pairs = [(theirs.linear1, block.mlp[0]), (theirs.linear2, block.mlp[2]), (theirs.norm1, block.norm1)]
    if block.cross_attention is None:
        pairs.append((theirs.norm2, block.norm2))
    else:
        copy_attention(theirs.multihead_attn, block.cross_attention)
        pairs += [(theirs.norm2, block.norm_context), (theirs.norm3, block.norm2)]
    for their_part, our_part in pairs:
        their_part.load_state_dict(our_part.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_torchs_transformer(norm):
    model = make(EncoderDecoder, "none", norm=norm)
    options = {"nhead": HEADS, "dim_feedforward": 4 * DIM, "activation": F.gelu, "norm_first": norm == "pre"}
    theirs = nn.Transformer(
        DIM, num_encoder_layers=2, num_decoder_layers=2, batch_first=True, dropout=0.0, dtype=torch.float64, **options
    )
    for layer, block in zip(theirs.encoder.layers, model.encoder, strict=True):
        copy_layer(layer, block)
    for layer, block in zip(theirs.decoder.layers, model.blocks, strict=True):
        copy_layer(layer, block)
    if norm == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    else:
        theirs.encoder.norm.load_state_dict(model.encoder_norm.state_dict())
        theirs.decoder.norm.load_state_dict(model.norm.state_dict())
    source, target = random_tokens(length=7), random_tokens(length=5, seed=2)
    padding = torch.arange(7) >= torch.tensor([7, 4])[:, None]
    embedded = model.embedding.weight.detach().clone().requires_grad_()
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    x, y = embedded[source] * DIM**0.5, embedded[target] * DIM**0.5
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": causal}
    expected = theirs(x, y, **masks) @ embedded.T
    ours = model(source, target, source_padding_mask=padding)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)
    cotangent = torch.randn(ours.shape, dtype=torch.float64)
    layer = theirs.encoder.layers[0]
    (mine,) = torch.autograd.grad((ours * cotangent).sum(), [model.embedding.weight], retain_graph=True)
    (other,) = torch.autograd.grad((expected * cotangent).sum(), [embedded], retain_graph=True)
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-9 * other.abs().max().item())
    (mine,) = torch.autograd.grad((ours * cotangent).sum(), [model.encoder[0].attention.out_proj.weight])
    (other,) = torch.autograd.grad((expected * cotangent).sum(), [layer.self_attn.out_proj.weight])
    torch.testing.assert_close(mine, other, rtol=0, atol=1e-9 * other.abs().max().item())


@every_encoding()
def test_right_padding_and_documents_equal_each_alone(made):
    encoder, tokens = make(SequenceEncoder, made.encoding()), random_tokens(length=9)
    padding = torch.arange(9) >= torch.tensor([9, 4])[:, None]
    ids = torch.tensor([[4, 4, 4, 4, 1, 1, 1, 9, 9], [0] * 2 + [1] * 7])
    with torch.no_grad():
        padded, packed = encoder(tokens, key_padding_mask=padding), encoder(tokens, document_ids=ids)
        torch.testing.assert_close(padded[1, :4], encoder(tokens[1:, :4])[0], rtol=0, atol=1e-10)
        for item, row in enumerate(ids):
            for number in row.unique():
                alone = encoder(tokens[item : item + 1, row == number])
                torch.testing.assert_close(packed[item, row == number], alone[0], rtol=0, atol=1e-10)


def test_sees_both_sides_and_no_farther_than_the_window():
    tokens = random_tokens(1)
    for window, seen in ((None, range(9)), ((1, 2), range(3, 7))):
        encoder = make(SequenceEncoder, "alibi", window=window, depth=1)
        changed = []
        for j in range(9):
            other = tokens.clone()
            other[0, j] = (other[0, j] + 1) % NUM_TOKENS
            changed.append(not torch.equal(encoder(other)[0, 4], encoder(tokens)[0, 4]))
        assert [j for j, differs in enumerate(changed) if differs] == list(seen)


@every_encoding()
def test_a_target_does_not_see_its_future(made):
    model, source, target = make(EncoderDecoder, made.encoding()), random_tokens(), random_tokens(length=6, seed=2)
    other = target.clone()
    other[:, 3] = (other[:, 3] + 1) % NUM_TOKENS
    with torch.no_grad():
        logits, changed = model(source, target), model(source, other)
        assert torch.equal(changed[:, :3], logits[:, :3])
        assert not torch.equal(changed[:, 3], logits[:, 3])
        source[:, 8] = (source[:, 8] + 1) % NUM_TOKENS
        assert (model(source, target) != logits).any(dim=-1).all()


def test_an_encoding_of_its_own_for_the_decoder():
    model = EncoderDecoder("t5", num_tokens=5, decoder_encoding="rope", tied=False)
    names = [{block.attention.encoding.name for block in blocks} for blocks in (model.encoder, model.blocks)]
    assert names == [{"t5"}, {"rope"}]
    assert {block.cross_attention.encoding.name for block in model.blocks} == {"none"}
    with pytest.raises(ValueError, match="applied at the input"):
        EncoderDecoder("t5", num_tokens=5, decoder_encoding="sinusoidal")


@pytest.mark.parametrize("model", [SequenceEncoder, EncoderDecoder])
@pytest.mark.parametrize("encoding", ["shaw", "learned"])
def test_meta_device_then_to_empty(model, encoding):
    options = {"num_tokens": 5, "max_length": 8, "dtype": torch.float64}
    empty = model(encoding, **options, device="meta").to_empty(device="cpu")
    other = model(encoding, **options)
    for fresh in (empty, other):
        torch.manual_seed(1)
        fresh.reset_parameters()
    for mine, theirs in zip(empty.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("model", [SequenceEncoder, EncoderDecoder])
def test_empty_sequences_and_bfloat16(model):
    made, tokens = model("t5", num_tokens=NUM_TOKENS), random_tokens()
    none = tokens[:, :0]
    size = made.embedding.dim if model is SequenceEncoder else NUM_TOKENS
    assert (made(none) if model is SequenceEncoder else made(none, none)).shape == (2, 0, size)
    with torch.autocast("cpu", torch.bfloat16):
        out = made(tokens) if model is SequenceEncoder else made(tokens, tokens)
    assert out.isfinite().all()
    if model is EncoderDecoder:
        assert made(none, tokens).isfinite().all()  # nothing to attend to


@pytest.mark.parametrize("tokens", [random_tokens() + 20, random_tokens().float(), random_tokens()[0]], ids=str)
def test_refuses_tokens_that_do_not_fit(tokens):
    right, model = random_tokens(), EncoderDecoder("none", num_tokens=NUM_TOKENS)
    for call in (lambda: model(tokens, right), lambda: model(right, tokens)):
        with pytest.raises(ValueError, match=r"^(tokens|source) must"):
            call()
    with pytest.raises(ValueError, match="tokens must"):
        SequenceEncoder("none", num_tokens=NUM_TOKENS)(tokens)


def test_a_block_has_cross_attention_or_no_context():
    x = torch.zeros(1, 2, 16)
    with pytest.raises(ValueError, match="needs a context"):
        TransformerBlock(16, 2, cross_attention=True)(x)
    with pytest.raises(ValueError, match="cross_attention=True alone"):
        TransformerBlock(16, 2)(x, context=x)
    with pytest.raises(ValueError, match="one pair for each of 3 blocks"):
        EncoderDecoder("none", num_tokens=5).decode(random_tokens() % 5, torch.zeros(2, 3, 96), caches=[])


def chunked_in_loops(encoder, document, chunk, overlap, pool):
    """The vector of one document without padding, (dim,)."""
    vectors, start = [], 0
    while True:
        if start + chunk >= len(document):
            start = max(0, len(document) - chunk)
        x = encoder(document[None, start : start + chunk])[0]
        vectors.append(sum(x) / len(x))
        if start + chunk >= len(document):
            break
        start += chunk - overlap
    return torch.stack([max(v) if pool == "max" else sum(v) / len(v) for v in torch.stack(vectors).T])


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize(("chunk", "overlap"), [(4, 0), (4, 1), (4, 3), (5, 2), (9, 0), (1, 0), (20, 5)])
def test_chunks_equal_a_loop(chunk, overlap, pool):
    encoder, tokens, lengths = make(SequenceEncoder, "learned", max_length=20), random_tokens(4), [9, 6, 4, 1]
    padding = torch.arange(9) >= torch.tensor(lengths)[:, None]
    with torch.no_grad():
        out = encode_in_chunks(encoder, tokens, chunk, overlap, key_padding_mask=padding, pool=pool)
        for item, length in enumerate(lengths):
            expected = chunked_in_loops(encoder, tokens[item, :length], chunk, overlap, pool)
            torch.testing.assert_close(out[item], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_chunks_without_a_mask_and_documents_without_tokens(pool):
    encoder, tokens = make(SequenceEncoder, "alibi"), random_tokens(2, 10)
    padding = torch.zeros(2, 10, dtype=torch.bool)
    with torch.no_grad():
        whole = encode_in_chunks(encoder, tokens, 4, 1, pool=pool)
        assert torch.equal(encode_in_chunks(encoder, tokens, 4, 1, key_padding_mask=padding, pool=pool), whole)
        padding[1] = True
        out = encode_in_chunks(encoder, tokens, 4, 1, key_padding_mask=padding, pool=pool)
    assert torch.equal(out[0], whole[0])
    assert (out[1] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk": 0}, "chunk must be"),
        ({"overlap": 4}, "overlap must be less than the chunk of 4 tokens, got 4"),
        ({"overlap": -1}, "overlap must be"),
        ({"pool": "first"}, '"mean" or "max", got \'first\''),
        ({"tokens": random_tokens()[:, :0]}, "N at least 1"),
        ({"tokens": random_tokens()[0]}, "N at least 1"),
        ({"key_padding_mask": torch.zeros(2, 3, dtype=torch.bool)}, "boolean of shape"),
        ({"key_padding_mask": torch.tensor([[True] + [False] * 8] * 2)}, "stands at the right"),
        ({"chunk": 9}, "'learned' has 6 positions, got 9 tokens"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_refuses_chunks_that_do_not_fit(arguments, message):
    encoder = SequenceEncoder("learned", num_tokens=NUM_TOKENS, max_length=6)
    with pytest.raises(ValueError, match=message):
        encode_in_chunks(**{"encoder": encoder, "tokens": random_tokens(), "chunk": 4, **arguments})
