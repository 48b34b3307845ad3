"""From a waveform to log-mel features, and their masking for training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relbias._extras import extra
from relbias.relations.base import check_size

with extra("audio"):
    from torchaudio.transforms import MelSpectrogram
    from torchaudio.transforms import SpecAugment as _SpecAugment

_FLOOR = 1e-6  # added to the energies, so that digital silence has a logarithm
_LEAST = 1e-2  # standard deviation; below it a clip is silence, whose rounding errors would be blown up
_LARGEST = 2**16  # frequencies of a Fourier transform


class LogMel(nn.Module):
    """The logarithm of the energies in mel bands, log(1e-6 + mel), of windows that lie inside the clip.

    S samples give T = 1 + (S - window) // hop frames, and frame t is of the samples from t hop on: nothing is padded,
    so a clip cut at a multiple of the hop gives frames of the whole. The length of the Fourier transform is the least
    power of two that holds a window and leaves no band without a frequency.

    Args:
        sample_rate: in samples per second.
        num_mels: F, the number of bands.
        window_ms: the length of a window, in milliseconds.
        hop_ms: from one window to the next, in milliseconds.

    Attributes:
        window: in samples.
        hop: in samples.

    Raises:
        ValueError: a number that is too small, or more bands than a transform of 2^16 could tell apart.

    Example:
        >>> LogMel(sample_rate=16000, num_mels=40)(torch.randn(16000)).shape
        torch.Size([98, 40])
    """

    def __init__(
        self, sample_rate: int = 16000, num_mels: int = 80, window_ms: float = 25.0, hop_ms: float = 10.0
    ) -> None:
        super().__init__()
        check_size("sample_rate", sample_rate, 1)
        check_size("num_mels", num_mels, 1)
        self.window, self.hop = (
            _samples(name, value, sample_rate) for name, value in (("window_ms", window_ms), ("hop_ms", hop_ms))
        )
        self.num_mels = num_mels
        self.size = _transform_size(self.window, sample_rate, num_mels)
        self.mel = MelSpectrogram(
            sample_rate, self.size, self.window, self.hop, n_mels=num_mels, center=False
        )  # torchaudio puts the window in the middle of the transform

    def num_frames(self, samples: int) -> int:
        """The number of frames of so many samples, 0 where they are fewer than a window."""
        return max(0, 1 + (samples - self.window) // self.hop)

    def num_samples(self, frames: int) -> int:
        """The fewest samples that give so many frames, at least 1."""
        return self.window + (frames - 1) * self.hop

    def forward(self, waveform: Tensor) -> Tensor:
        """The features of waveforms.

        Args:
            waveform: (..., S).

        Returns:
            (..., T, F).

        Raises:
            ValueError: the waveform is shorter than a window.
        """
        if waveform.shape[-1] < self.window:
            raise ValueError(f"{waveform.shape[-1]} samples are shorter than a window of {self.window}")
        left = (self.size - self.window) // 2
        padded = torch.nn.functional.pad(waveform, (left, self.size - self.window - left))
        return (self.mel(padded) + _FLOOR).log().transpose(-1, -2)


def normalized(features: Tensor) -> Tensor:
    """The features of one clip with mean 0 and standard deviation 1 over all its frames and bands.

    Args:
        features: (T, F).

    Returns:
        (T, F); about zero where all are equal.

    Example:
        >>> normalized(torch.tensor([[1.0, 3.0], [1.0, 3.0]]))
        tensor([[-1.,  1.],
                [-1.,  1.]])
    """
    centred = features - features.mean()
    return centred / centred.square().mean().sqrt().clamp(min=_LEAST)


class SpecAugment(nn.Module):
    """Masks random spans of frames and of bands of one clip with zeros (https://arxiv.org/abs/1904.08779).

    The width of each span is drawn evenly from 0 to one less than its bound, then its place.

    Args:
        time_masks: how many spans of frames.
        time_width: the bound of their widths, in frames.
        mel_masks: how many spans of bands.
        mel_width: the bound of their widths, in bands.
        time_share: the bound of their widths in short clips, as a share of the frames (likewise of the bands), above
            0, at most 1.

    Raises:
        ValueError: a negative number, or a share outside its range.

    Example:
        >>> SpecAugment(time_width=30)(torch.ones(100, 80)).shape
        torch.Size([100, 80])
    """

    def __init__(
        self,
        time_masks: int = 2,
        time_width: int = 25,
        mel_masks: int = 2,
        mel_width: int = 15,
        time_share: float = 0.5,
    ) -> None:
        super().__init__()
        counts = {"time_masks": time_masks, "time_width": time_width, "mel_masks": mel_masks, "mel_width": mel_width}
        for name, count in counts.items():
            check_size(name, count, 0)
        if not 0 < time_share <= 1:
            raise ValueError(f"time_share is {time_share}, expected a share above 0, at most 1")
        self.masks = _SpecAugment(
            n_time_masks=time_masks,
            time_mask_param=time_width,
            n_freq_masks=mel_masks,
            freq_mask_param=mel_width,
            iid_masks=False,
            p=time_share,
            zero_masking=True,
        )

    def forward(self, features: Tensor) -> Tensor:
        """The features (T, F) of one clip, masked by torch's random numbers; those given stay as they are."""
        return self.masks(features.t()[None])[0].t()


def _samples(name: str, milliseconds: float, sample_rate: int) -> int:
    samples = round(milliseconds * sample_rate / 1000) if math.isfinite(milliseconds) else 0
    if samples < 1:
        raise ValueError(f"{name} is {milliseconds}, expected at least a sample at a sample_rate of {sample_rate}")
    return samples


def _transform_size(window: int, sample_rate: int, num_mels: int) -> int:
    """The shortest power of two that holds the window and has a frequency inside each mel band.

    The bands are at equal distances on the mel scale m(f) = 2595 log10(1 + f / 700), so the first is the narrowest, and
    where frequencies are closer to each other than its width, each band has one.
    """
    width = 700 * ((1 + sample_rate // 2 / 700) ** (2 / (num_mels + 1)) - 1)  # hertz
    size = 1 << max(window - 1, int(sample_rate / width)).bit_length()
    if size > _LARGEST:
        raise ValueError(f"num_mels is {num_mels}, too many bands for a sample_rate of {sample_rate}")
    return size
