"""From one sample rate to another."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from relbias._extras import extra

with extra("audio"):
    from torchaudio.transforms import Resample

_WIDTH, _ROLLOFF = 6, 0.99  # torchaudio's: zero crossings to either side, and the cutoff as a share of the lower rate
_LARGEST = 2**20  # numbers in torchaudio's table of weights, a row for each phase
_AT_ONCE = 2**16  # samples of the result


def resampled(waveform: Tensor, rate: int, new_rate: int) -> Tensor:
    """A waveform at another rate, by torchaudio's windowed sinc interpolation.

    torchaudio tabulates the weights of each phase, which for rates without a large common divisor are billions; those
    are computed here sample by sample.

    Args:
        waveform: (S,).
        rate: of the waveform, in samples per second.
        new_rate: the one wanted.

    Returns:
        (ceil(S new_rate / rate),).

    Example:
        >>> resampled(torch.zeros(44100), 44100, 16000).shape
        torch.Size([16000])
    """
    divisor = math.gcd(rate, new_rate)
    if rate // divisor * (new_rate // divisor) <= _LARGEST:
        return _resample(rate, new_rate)(waveform)
    return directly(waveform, rate, new_rate)


@lru_cache(maxsize=16)
def _resample(rate: int, new_rate: int) -> Resample:
    return Resample(rate, new_rate, lowpass_filter_width=_WIDTH, rolloff=_ROLLOFF)


def directly(waveform: Tensor, rate: int, new_rate: int) -> Tensor:
    """The same as :func:`resampled`, with weights of its own for each sample: y_n = sum_k x_k h(k / r - n / r').

    h(t) = c / r sinc(c t) cos^2(pi c t / 12) for |c t| <= 6 with the cutoff c = 0.99 min(r, r').
    """
    cutoff = _ROLLOFF * min(rate, new_rate)
    reach = math.ceil(_WIDTH * rate / cutoff)  # samples to either side
    total = -(-len(waveform) * new_rate // rate)
    padded = torch.nn.functional.pad(waveform, (reach, reach + 1))
    near = torch.arange(-reach, reach + 2)
    parts = []
    for start in range(0, total, _AT_ONCE):
        ticks = torch.arange(start, min(start + _AT_ONCE, total)) * rate  # of 1 / (r r') seconds
        below = ticks // new_rate
        offset = near - (ticks % new_rate).double()[:, None] / new_rate  # in samples of the waveform
        time = (offset * (cutoff / rate)).clamp(-_WIDTH, _WIDTH)
        weights = torch.sinc(time) * (time * (math.pi / (2 * _WIDTH))).cos().square() * (cutoff / rate)
        parts.append((padded[below[:, None] + near + reach] * weights.to(waveform.dtype)).sum(1))
    return torch.cat(parts) if parts else waveform
