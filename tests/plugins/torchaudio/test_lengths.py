"""With lengths a batch is its items one by one, whatever lies in the padding."""

import pytest
import torch
from tests.plugins.torchaudio.hosts import FRAMES, LENGTHS, clips, inner, layers, make, padded
from torch import nn
from torchaudio.models.wav2vec2.components import ConvLayerBlock

from relbias.plugins.torchaudio import attach
from relbias.plugins.torchaudio.lengths import MaskedConvLayerBlock


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["none", "wavlm", "transformer_xl"])
@pytest.mark.parametrize("garbage", [0.0, torch.nan])
def test_a_batch_is_its_items_alone(model, train, encoding, garbage):
    attach(model.double(), encoding)
    train(model)
    x = padded().double()
    x[1, LENGTHS[1] :] = garbage
    together, lengths = model(x, LENGTHS)
    assert torch.equal(lengths, FRAMES)
    for i, (samples, frames) in enumerate(zip(LENGTHS, FRAMES, strict=True)):
        alone = model(x[i : i + 1, :samples])[0][0]
        torch.testing.assert_close(together[i, :frames], alone, rtol=0, atol=1e-9)


@torch.no_grad()
def test_every_layers_features_of_a_batch_are_those_alone(model):
    attach(model.double(), "t5")
    x = padded().double()
    together, lengths = model.extract_features(x, LENGTHS)
    assert torch.equal(lengths, FRAMES)
    for layer, alone in zip(together, model.extract_features(x[1:, : LENGTHS[1]])[0], strict=True):
        torch.testing.assert_close(layer[1, : FRAMES[1]], alone[0], rtol=0, atol=1e-9)


def test_torchaudios_wavlm_fails_with_lengths(wavlm):
    """The reason for all this: if it no longer does, its results are worth a comparison."""
    with pytest.raises(AssertionError):
        wavlm(padded(), LENGTHS)


@torch.no_grad()
@pytest.mark.parametrize("name", ["wav2vec2 large", "hubert large"])
def test_where_torchaudio_is_right_with_lengths_its_numbers_stay(name):
    """A model whose norms run over channels only, without the normalisation of a bundle."""
    model = inner(make(name))
    before = model(padded(), LENGTHS)[0]
    attach(model, "t5")
    assert torch.equal(model(padded(), LENGTHS)[0], before)


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_group_norm_of_one_item_is_torchs(groups):
    torch.manual_seed(0)
    block = ConvLayerBlock(1, 8, 10, 5, True, nn.GroupNorm(groups, 8)).double()
    nn.init.normal_(block.layer_norm.weight)
    nn.init.normal_(block.layer_norm.bias)
    x, length = torch.randn(2, 1, 200, dtype=torch.float64), torch.tensor([200, 133])
    wanted = [block(x[i : i + 1, :, :n], None)[0] for i, n in enumerate(length)]
    block.__class__ = MaskedConvLayerBlock
    found, lengths = block(x, length)
    assert lengths.tolist() == [w.shape[-1] for w in wanted]
    for i, w in enumerate(wanted):
        torch.testing.assert_close(found[i : i + 1, :, : w.shape[-1]], w, rtol=0, atol=1e-12)


def test_gradients_do_not_see_the_padding(wavlm):
    attach(wavlm.double(), "wavlm")
    x = padded().double().requires_grad_()
    out, frames = wavlm(x, LENGTHS)
    out[1, : frames[1]].square().sum().backward()
    assert not x.grad[1, LENGTHS[1] :].any()
    assert not x.grad[0].any()
    assert x.grad[1, : LENGTHS[1]].any()


@pytest.mark.parametrize("samples", [0, 84])
def test_clips_without_a_frame(model, samples):
    attach(model, "t5")
    x = padded()
    out, frames = model(x, torch.tensor([2000, samples]))
    assert frames.tolist() == [48, 0]
    assert out.isfinite().all()
    torch.testing.assert_close(out[0], model(x[:1])[0][0], rtol=1e-4, atol=1e-5)
    out[0].square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@torch.no_grad()
def test_the_aligners_bundle_keeps_its_probabilities_and_star():
    model = make("aligner", aux_num_out=5)
    attach(model, "t5")
    x = clips(batch=1)
    out, frames = model(torch.nn.functional.pad(x, (0, 500), value=9.0), torch.tensor([2000]))
    assert out.shape[-1] == 6
    torch.testing.assert_close(out[:, : frames[0]], model(x)[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out[..., :5].exp().sum(-1), torch.ones(1, out.shape[1]))
    assert not out[..., 5].any()


@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        (clips(84), None, "have 84 samples and the first frame needs 85"),
        (clips(0), None, "have 0 samples and the first frame needs 85"),
        (clips()[:, None], None, r"shape \(batch, samples\), one channel each, got \(2, 1, 2000\)"),
        (clips(), torch.tensor([2000]), r"lengths are 2 integers, .* got shape \(1,\)"),
        (clips(), torch.tensor([1.0, 0.5]), r"lengths are 2 integers, .* of torch.float32"),
        (clips(), torch.tensor([2001, 5]), r"from 0 to the 2000 samples that are there, got \[2001, 5\]"),
        (clips(), torch.tensor([-1, 5]), r"from 0 to the 2000 samples that are there, got \[-1, 5\]"),
    ],
)
@pytest.mark.parametrize("name", ["wavlm", "wavlm large"])
def test_batches_that_do_not_fit(name, x, lengths, message):
    model = make(name)
    attach(model, "t5")
    with pytest.raises(ValueError, match=message) as caught:
        model(x, lengths)
    assert "\n" not in str(caught.value)


def test_masks_of_ones_own(wavlm):
    """Of one's own and not of lengths: queries differ."""
    attach(wavlm.double(), "wavlm")
    attention = layers(wavlm)[0]
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    causal = torch.ones(5, 5, dtype=torch.bool).tril().expand(2, 1, 5, 5)
    out = attention(x, attention_mask=causal)[0]
    torch.testing.assert_close(attention(x[:, :3])[0][:, 2], out[:, 2])
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    out = attention(x, key_padding_mask=padding)[0]
    torch.testing.assert_close(attention(x[1:, :3])[0][0], out[1, :3])
    for mask in (padding.float(), padding.expand(3, 1, 2, 5)):
        with pytest.raises(ValueError, match=r"attention_mask has shape \(2, 1, 5, 5\), got"):
            attention(x, attention_mask=mask)
    with pytest.raises(ValueError, match=r"shape \(batch, frames, 24\), got \(2, 5, 23\)"):
        attention(x[..., :-1])
