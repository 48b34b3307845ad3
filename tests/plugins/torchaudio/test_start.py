"""attach changes nothing until training does; detach undoes it."""

import copy

import pytest
import torch
import torchaudio
from tests.plugins.torch.test_refusals import same, snapshot
from tests.plugins.torchaudio.hosts import FRAMES, LENGTHS, clips, inner, layers, make, padded
from torchaudio.models.wav2vec2.components import LogitGenerator, MaskGenerator

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.torchaudio import attach, detach

CHOICES = {
    "t5": ("t5", {}),
    "wavlm": ("wavlm", {}),
    "table": ("table", {"relation": rb.relations.Sequence(max_distance=4)}),
    "shaw with values": ("shaw", {"max_distance": 3, "values": True}),
    "transformer_xl": ("transformer_xl", {}),
    "rope": ("rope", {}),
    "sum": ({"a": "t5", "b": "rope"}, {}),
    "none": ("none", {}),
}


@pytest.fixture(params=CHOICES)
def choice(request):
    return CHOICES[request.param]


@torch.no_grad()
def test_exactly_unchanged_until_moved_and_after_detach(model, train, choice):
    encoding, options = choice
    before, start = model(clips())[0], snapshot(model)
    attach(model, encoding, **options)
    assert torch.equal(model(clips())[0], before)
    assert all(".encoding." in key for key in set(model.state_dict()) - set(start[1]))
    train(model)
    if encoding != "none":
        assert (model(clips())[0] - before).abs().max() > 1e-3
    detach(model)
    assert same(snapshot(model), start)
    assert torch.equal(model(clips())[0], before)


def test_every_layer_learns(model):
    before = model(clips())[0]
    attach(model, "t5")
    out = model(clips())[0]
    torch.testing.assert_close(out, before)
    out.square().sum().backward()
    assert [bool(encoding.table.grad.any()) for encoding in encodings(model)] == [True, True]


@torch.no_grad()
def test_every_layers_features_follow(model, train):
    before = model.extract_features(clips())[0]
    attach(model, "t5")
    assert all(map(torch.equal, model.extract_features(clips())[0], before))
    train(model)
    after = model.extract_features(clips(), num_layers=1)[0]
    assert len(after) == 1
    assert (after[0] - before[0]).abs().max() > 1e-3


@torch.no_grad()
def test_cope_needs_projections_of_its_own(train):
    model = make("hubert")
    before = model(clips())[0]
    attach(model, "cope", num_positions=8)
    assert torch.equal(model(clips())[0], before)
    train(model)
    assert (model(clips())[0] - before).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_in_the_hosts_dtype(wavlm, dtype):
    wavlm.to(dtype)
    attach(wavlm, "wavlm")
    assert {parameter.dtype for encoding in encodings(wavlm) for parameter in encoding.parameters()} == {dtype}
    out, lengths = wavlm(padded().to(dtype), LENGTHS)
    assert out.dtype == dtype
    assert out.isfinite().all()
    assert torch.equal(lengths, FRAMES)


def test_dropout_and_dropped_layers_fall_as_before():
    model = make("wavlm", encoder_attention_dropout=0.2, encoder_layer_drop=0.3).train()
    torch.manual_seed(2)
    before = model(clips())[0]
    attach(model, "none")
    torch.manual_seed(2)
    torch.testing.assert_close(model(clips())[0], before)


def test_hubert_in_pretraining(train):
    torch.manual_seed(0)
    host = make("hubert")
    pretraining = torchaudio.models.HuBERTPretrainModel(
        host,
        MaskGenerator(24, 0.5, "static", 0.0, 4, False, 1, 0, "static", 0, 4, False, 1),
        LogitGenerator(24, 5, 8, False, False),
        feature_grad_mult=None,
    )
    labels = torch.randint(5, (2, 48))
    torch.manual_seed(3)
    before = pretraining(clips(), labels)[0]
    attach(pretraining, "t5")
    torch.manual_seed(3)
    torch.testing.assert_close(pretraining(clips(), labels)[0], before)
    train(pretraining)
    torch.manual_seed(3)
    assert not torch.allclose(pretraining(clips(), labels)[0], before, atol=1e-3)


def test_copies_are_independent(model, train):
    attach(model, "t5")
    twin = copy.deepcopy(model)
    with torch.no_grad():
        before = model(clips())[0]
        train(twin)
        assert torch.equal(model(clips())[0], before)
        assert not torch.equal(twin(clips())[0], before)
        detach(twin)
        assert torch.equal(model(clips())[0], before)


@torch.no_grad()
def test_attention_is_captured(wavlm):
    attach(wavlm, "wavlm")
    with rb.capture(wavlm) as captured:
        wavlm(padded(), LENGTHS)
    prefix = "" if inner(wavlm) is wavlm else "model."
    assert [record.name for record in captured] == [
        f"{prefix}encoder.transformer.layers.{layer}.attention" for layer in range(len(layers(wavlm)))
    ]
    assert captured[0].weights.shape == (2, 3, 48, 48)
    assert not captured[0].weights[1, :, :28, 28:].any()
