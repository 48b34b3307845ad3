"""Small models of torchaudio's families, as its bundles return them, with random weights instead of a download."""

import dataclasses
from unittest import mock

import torch
import torchaudio
from torch import nn
from torchaudio.pipelines._wav2vec2 import utils

BUNDLES = {
    "wav2vec2": torchaudio.pipelines.WAV2VEC2_ASR_BASE_10M,
    "wav2vec2 large": torchaudio.pipelines.WAV2VEC2_LARGE_LV60K,
    "hubert": torchaudio.pipelines.HUBERT_BASE,
    "hubert large": torchaudio.pipelines.HUBERT_ASR_LARGE,
    "wavlm": torchaudio.pipelines.WAVLM_BASE,
    "wavlm large": torchaudio.pipelines.WAVLM_LARGE,
}
"""A bundle of each kind: group norm or layer norm over time, norm before or after, samples normalised or not."""
SIZES = {
    "extractor_conv_layer_config": [(16, 10, 5), (16, 8, 4), (16, 3, 2)],
    "encoder_embed_dim": 24,
    "encoder_num_heads": 3,
    "encoder_num_layers": 2,
    "encoder_ff_interm_features": 32,
    "encoder_pos_conv_kernel": 8,
    "encoder_pos_conv_groups": 4,
}
STILL = {
    "encoder_projection_dropout": 0.0,
    "encoder_attention_dropout": 0.0,
    "encoder_ff_interm_dropout": 0.0,
    "encoder_dropout": 0.0,
    "encoder_layer_drop": 0.0,
}
LENGTHS = torch.tensor([2000, 1200])
FRAMES = torch.tensor([48, 28])


ALIGNER = torchaudio.pipelines.MMS_FA
"""Its model adds the log-probability 0 of a star, to one item at a time."""


def make(name, **changed):
    """What the bundle's get_model() returns, of the same architecture but small."""
    torch.manual_seed(0)
    bundle = ALIGNER if name == "aligner" else BUNDLES[name]
    small = dataclasses.replace(bundle, _params={**bundle._params, **SIZES, **STILL, **changed})
    model = utils._get_model(small._model_type, small._params)
    with torch.no_grad():
        for parameter in model.encoder.parameters():  # random, not the small numbers of a start
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    with mock.patch.object(utils, "_get_state_dict", return_value=model.state_dict()):
        return small.get_model()


def inner(model):
    """The model inside what a bundle wraps around it."""
    return getattr(model, "model", model)


def clips(samples=2000, batch=2):
    return torch.randn(batch, samples, generator=torch.Generator().manual_seed(1)) + 0.1


def padded():
    """Two clips of `LENGTHS`, with zeros after the shorter one."""
    x = clips()
    x[1, LENGTHS[1] :] = 0.0
    return x


def layers(model) -> list[nn.Module]:
    return [layer.attention for layer in inner(model).encoder.transformer.layers]
