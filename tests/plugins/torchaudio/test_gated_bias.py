"""WavLM's own gated bias: kept beside an encoding, or taken over by "wavlm", with the numbers that others compute."""

import pytest
import torch
from tests.plugins.torchaudio.hosts import FRAMES, LENGTHS, clips, inner, layers, make, padded
from torchaudio.models.wav2vec2.utils import import_huggingface_model
from transformers import WavLMConfig, WavLMModel

from relbias.plugins.engine import encodings
from relbias.plugins.torchaudio import attach, detach, settings


@pytest.fixture
def transformers_wavlm():
    """With layer norms, since its group norm runs over padding too."""
    torch.manual_seed(0)
    config = WavLMConfig(
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=32,
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 8, 3),
        conv_stride=(5, 4, 2),
        conv_bias=True,
        feat_extract_norm="layer",
        do_stable_layer_norm=True,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        num_buckets=20,  # so few that clips of 48 frames reach the buckets that several distances share
        max_bucket_distance=40,
    )
    model = WavLMModel(config).eval()
    with torch.no_grad():
        for layer in model.encoder.layers:
            for parameter in layer.attention.parameters():
                parameter.normal_(std=0.5)
    return model


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["wavlm", "none"])
def test_with_lengths_the_output_is_that_of_transformers(transformers_wavlm, encoding):
    model = import_huggingface_model(transformers_wavlm).eval().double()
    attach(model, encoding)
    x = padded().double()
    mask = (torch.arange(x.shape[1]) < LENGTHS[:, None]).long()
    wanted = transformers_wavlm.double()(x, attention_mask=mask).last_hidden_state
    found, lengths = model(x, LENGTHS)
    assert torch.equal(lengths, FRAMES)
    for ours, theirs, frames in zip(found, wanted, FRAMES, strict=True):
        torch.testing.assert_close(ours[:frames], theirs[:frames], rtol=0, atol=1e-10)


def test_gradients_are_those_of_torchaudio():
    """Of the table that its layers share, what those of the layers add up to."""
    model, host = make("wavlm").double(), make("wavlm").double()
    attach(model, "wavlm")
    x = clips().double().requires_grad_()
    found = torch.autograd.grad(model(x)[0].square().sum(), [x, *_parameters(encodings(model))])
    gates = [(a.gru_rel_pos_linear.weight, a.gru_rel_pos_linear.bias, a.gru_rel_pos_const) for a in layers(host)]
    own = [layers(host)[0].rel_attn_embed.weight, *(parameter for layer in gates for parameter in layer)]
    theirs = torch.autograd.grad(host(x)[0].square().sum(), [x, *own])
    torch.testing.assert_close(found[0], theirs[0])
    tables = [grad for grad in found[1:] if grad.shape == (3, 320)]
    assert len(tables) == 2
    torch.testing.assert_close(sum(tables), theirs[1].T)
    rest = [grad for grad in found[1:] if grad.shape != (3, 320)]
    for ours, wanted in zip(rest, theirs[2:], strict=True):
        torch.testing.assert_close(ours, wanted.view_as(ours))


def _parameters(layers):
    return [parameter for e in layers for parameter in (e.table, e.gate.weight, e.gate.bias, e.constant)]


def test_the_own_bias_trains_on_beside_an_encoding(wavlm):
    attach(wavlm, "t5")
    wavlm(padded(), LENGTHS)[0].square().sum().backward()
    first, second = layers(wavlm)
    for parameter in (first.rel_attn_embed.weight, first.gru_rel_pos_const, second.gru_rel_pos_linear.weight):
        assert parameter.grad.any()
    assert all(encoding.table.grad.any() for encoding in encodings(wavlm))


def test_taken_over_it_trains_in_the_encoding_alone(wavlm):
    attach(wavlm, "wavlm")
    wavlm(padded(), LENGTHS)[0].square().sum().backward()
    for layer in layers(wavlm):
        assert all(parameter.grad.any() for parameter in layer.encoding.parameters())
        assert layer.gru_rel_pos_const.grad is None
    assert layers(wavlm)[0].rel_attn_embed.weight.grad is None


@torch.no_grad()
def test_taken_over_it_is_another_one_than_the_hosts(wavlm):
    """So that the host's is untouched by what the encoding learns, and the encoding by the host's."""
    before = wavlm(clips())[0]
    attach(wavlm, "wavlm")
    for layer in layers(wavlm):
        layer.gru_rel_pos_const.zero_()
    assert torch.equal(wavlm(clips())[0], before)
    for encoding in encodings(wavlm):
        encoding.table.zero_()
    assert (wavlm(clips())[0] - before).abs().max() > 1e-3
    assert layers(wavlm)[0].rel_attn_embed.weight.any()


@torch.no_grad()
def test_in_a_sum_the_own_bias_stays(wavlm):
    before = wavlm(clips())[0]
    attach(wavlm, {"second": "wavlm", "turn": "rope"})
    assert torch.equal(wavlm(clips())[0], before)
    assert not any(encoding.encodings["second"].table.any() for encoding in encodings(wavlm))


@torch.no_grad()
def test_of_the_models_own_size(wavlm, train):
    small = make("wavlm", encoder_num_buckets=8, encoder_max_distance=16)
    before = small(clips())[0]
    attach(small, "wavlm")
    assert torch.equal(small(clips())[0], before)
    assert encodings(small)[0].table.shape == (3, 8)
    train(small)
    fresh = make("wavlm", encoder_num_buckets=8, encoder_max_distance=16)
    attach(fresh, **settings(small))
    fresh.load_state_dict(small.state_dict())
    assert torch.equal(fresh(clips())[0], small(clips())[0])
    assert (fresh(clips())[0] - before).abs().max() > 1e-3


@pytest.mark.parametrize("options", [{"num_buckets": 32}, {"max_distance": 100}, {"strength": 1.0}])
def test_other_options_do_not_fit(wavlm, options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=rf"'wavlm' takes over the model's own bias, .* got {name}=") as caught:
        attach(wavlm, "wavlm", **options)
    assert "\n" not in str(caught.value)
    attach(wavlm, "wavlm", num_buckets=320, max_distance=800)
    detach(wavlm)
    attach(make("hubert"), "wavlm", **options)  # which has no bias


def test_several_sizes_do_not_fit():
    both = torch.nn.ModuleList([make("wavlm"), make("wavlm", encoder_num_buckets=8, encoder_max_distance=16)])
    with pytest.raises(ValueError, match=r"several sizes, \[\(8, 16\), \(320, 800\)\]; attach to one model"):
        attach(both, "wavlm")
    attach(both, "t5")
    detach(both)
    beside = torch.nn.ModuleList([make("hubert"), make("wavlm")])
    before = [model(clips())[0] for model in beside]
    attach(beside, "wavlm")
    for model, wanted in zip(beside, before, strict=True):
        torch.testing.assert_close(model(clips())[0], wanted)
    assert inner(beside[1]).encoder.transformer.layers[1].attention.encoding.table.any()


@torch.no_grad()
def test_the_bias_of_every_pair_is_never_made(wavlm):
    """Layers hand on a table, not (B, H, N, N)."""
    attach(wavlm, "t5")
    seen = []
    layers(wavlm)[1].register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["position_bias"].shape), with_kwargs=True
    )
    wavlm(clips())
    assert seen == [(3, 320)]
