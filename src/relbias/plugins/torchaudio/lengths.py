"""With lengths, every item of a batch is what it is alone: its norms over time run over its own samples only.

torchaudio's run over the padding too, and that over the samples over all items together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias._extras import extra

with extra("audio"):
    from torchaudio.models.wav2vec2.components import ConvLayerBlock, FeatureExtractor
    from torchaudio.pipelines._wav2vec2.utils import _Wav2Vec2Model


class CheckedFeatureExtractor(FeatureExtractor):
    """The convolutions over the samples, which say what is wrong with a batch."""

    host_class = FeatureExtractor

    def forward(self, x: Tensor, length: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """As torchaudio's.

        Args:
            x: (B, T), samples.
            length: (B,), how many of them are an item's own.

        Returns:
            The features, (B, N, C), and the number of frames, (B,), or None.

        Raises:
            ValueError: the samples or the lengths do not fit.
        """
        if x.ndim != 2:
            raise ValueError(f"waveforms have shape (batch, samples), one channel each, got {tuple(x.shape)}")
        shortest = 1
        blocks: Any = self.conv_layers
        for layer in reversed(blocks):
            shortest = (shortest - 1) * layer.stride + layer.kernel_size
        if x.shape[1] < shortest:
            raise ValueError(
                f"the clips have {x.shape[1]} samples and the first frame needs {shortest}; pad them with zeros, and "
                "give lengths"
            )
        if length is not None:
            _check_lengths(x, length)
        return super().forward(x, length)


class MaskedConvLayerBlock(ConvLayerBlock):
    """A convolution whose group norm runs over the frames of each item."""

    host_class = ConvLayerBlock

    def forward(self, x: Tensor, length: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """As torchaudio's.

        Args:
            x: (B, C, T).
            length: (B,), how many steps in time are an item's own; all of them if None.

        Returns:
            (B, C', T'), and the lengths of it, (B,), or None.
        """
        if length is None:
            return super().forward(x, length)
        x = self.conv(x)
        length = (torch.div(length - self.kernel_size, self.stride, rounding_mode="floor") + 1).clamp(min=0)
        norm: Any = self.layer_norm
        grouped = x.unflatten(1, (norm.num_groups, -1))
        x = _standardize(grouped, length, norm.eps).flatten(1, 2) * norm.weight[:, None] + norm.bias[:, None]
        return nn.functional.gelu(x), length


class MaskedWav2Vec2Model(_Wav2Vec2Model):
    """What bundles wrap around a model: with lengths each item is normalised over its own samples."""

    host_class = _Wav2Vec2Model

    def forward(self, waveforms: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """As torchaudio's.

        Args:
            waveforms: (B, T), samples.
            lengths: (B,), how many of them are an item's own; without it all items are normalised together.

        Returns:
            As torchaudio's.

        Raises:
            ValueError: the samples or the lengths do not fit.
        """
        plain, waveforms = self._normalized(waveforms, lengths)
        return _Wav2Vec2Model.forward(plain, waveforms, lengths)

    def extract_features(
        self, waveforms: Tensor, lengths: Tensor | None = None, num_layers: int | None = None
    ) -> tuple[list[Tensor], Tensor | None]:
        """As torchaudio's.

        Args:
            waveforms: as in `forward`.
            lengths: as in `forward`.
            num_layers: how many layers to run, all by default.

        Returns:
            As torchaudio's.

        Raises:
            ValueError: the samples or the lengths do not fit.
        """
        plain, waveforms = self._normalized(waveforms, lengths)
        return _Wav2Vec2Model.extract_features(plain, waveforms, lengths, num_layers)

    def _normalized(self, waveforms: Tensor, lengths: Tensor | None) -> tuple[Any, Tensor]:
        """A stand-in for this module that normalises no more, and what it is given."""
        if lengths is None or not self.normalize_waveform:
            return self, waveforms
        _check_lengths(waveforms, lengths)
        stand_in = object.__new__(_Wav2Vec2Model)
        stand_in.__dict__ = {**self.__dict__, "normalize_waveform": False}
        return stand_in, _standardize(waveforms[:, None, None], lengths, 1e-5)[:, 0, 0]  # layer_norm's own eps


def swapped_classes(model: nn.Module) -> dict[nn.Module, type[nn.Module]]:
    """The modules of a model that look at lengths, each with the class that takes the place of its own.

    Args:
        model: any, with wav2vec 2.0, HuBERT or WavLM inside.
    """
    found: dict[nn.Module, type[nn.Module]] = {}
    for module in model.modules():
        if type(module) is FeatureExtractor:
            found[module] = CheckedFeatureExtractor
        elif type(module) is ConvLayerBlock and isinstance(module.layer_norm, nn.GroupNorm):
            found[module] = MaskedConvLayerBlock
        elif type(module) is _Wav2Vec2Model:
            found[module] = MaskedWav2Vec2Model
    return found


def _check_lengths(x: Tensor, lengths: Tensor) -> None:
    if tuple(lengths.shape) != x.shape[:1] or lengths.dtype.is_floating_point or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths are {x.shape[0]} integers, one an item, in samples; got shape {tuple(lengths.shape)} of "
            f"{lengths.dtype}"
        )
    if torch.compiler.is_compiling() or lengths.is_meta:  # looking at them would break the graph
        return
    if bool((lengths < 0).any() | (lengths > x.shape[1]).any()):
        raise ValueError(f"lengths are from 0 to the {x.shape[1]} samples that are there, got {lengths.tolist()}")


def _standardize(x: Tensor, length: Tensor, eps: float) -> Tensor:
    """Numbers with mean 0 and variance 1 over the channels of a group and an item's own steps.

    Args:
        x: (B, G, C, T).
        length: (B,).
        eps: added to the variance.
    """
    numbers = x.to(torch.promote_types(x.dtype, torch.float32))
    padding = (torch.arange(x.shape[-1], device=x.device) >= length.to(x.device)[:, None])[:, None, None]
    count = (length.to(x.device) * x.shape[2]).clamp(min=1)[:, None, None, None]
    mean = numbers.masked_fill(padding, 0.0).sum((2, 3), keepdim=True) / count
    centred = (numbers - mean).masked_fill(padding, 0.0)
    variance = centred.square().sum((2, 3), keepdim=True) / count
    return (centred * (variance + eps).rsqrt()).to(x.dtype)
