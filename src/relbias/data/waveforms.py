"""Audio files as waveforms: one channel, at one rate, every sample a finite number."""

from __future__ import annotations

import importlib
import io
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from relbias._extras import extra
from relbias.data.resampling import resampled
from relbias.relations.base import check_size

with extra("audio"):
    import soundfile

Decoder = Literal["soundfile", "torchcodec"]
EXTENSIONS = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif", ".opus")
"""The names of files that soundfile reads end with one of these, in small or capital letters."""
_LARGEST = 2.0**32  # above 32-bit integers; the energies of much larger samples are infinite


class UnreadableAudioError(ValueError):
    """An audio file cannot be used; the message names it.

    Args:
        message: a line; or a traceback that ends with it, which torch gives to the class of an error in a process that
            loads batches.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.rpartition(f"{type(self).__name__}: ")[2].split()))


def read_waveform(path: str | Path, sample_rate: int | None = None, decoder: Decoder = "soundfile") -> Tensor:
    """The samples of a file: the mean of its channels, resampled where the file has another rate.

    Args:
        path: of the file.
        sample_rate: the rate wanted, in samples per second; None for the file's own.
        decoder: "soundfile" reads WAV, FLAC, OGG and MP3; "torchcodec" whatever FFmpeg reads, see
            :func:`check_decoder`.

    Returns:
        (S,) float32, from -1 to 1 in most files.

    Raises:
        UnreadableAudioError: the file is missing, empty or damaged, or a sample is NaN, infinite or above 2^32.
        ValueError: no such decoder, it does not work here, or a rate below 1.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "tone.wav"
        >>> soundfile.write(path, np.sin(np.arange(8000) / 5), 8000)
        >>> read_waveform(path, sample_rate=16000).shape
        torch.Size([16000])
    """
    if sample_rate is not None:
        check_size("sample_rate", sample_rate, 1)
    check_decoder(decoder)
    channels, rate = _torchcodec(path) if decoder == "torchcodec" else _soundfile(path)  # (C, S)
    if not channels.numel():
        raise UnreadableAudioError(f"{path} has no samples; replace or remove it")
    usable = channels.abs() <= _LARGEST  # NaN is not
    if not usable.all():
        place = int((~usable).any(0).int().argmax())
        raise UnreadableAudioError(f"sample {place} of {path} is NaN, infinite or above 2^32; replace or remove it")
    waveform = channels.mean(0)
    return waveform if sample_rate in (None, rate) else resampled(waveform, rate, sample_rate)


@lru_cache
def check_decoder(decoder: str) -> None:
    """Raises ValueError unless a decoder works here: torchcodec decodes a short file, as its import proves nothing.

    Args:
        decoder: its name.
    """
    if decoder not in get_args(Decoder):
        raise ValueError(f"decoder is {decoder!r}, expected one of {', '.join(get_args(Decoder))}")
    if decoder == "torchcodec":
        probe = io.BytesIO()
        soundfile.write(probe, np.zeros(800), 8000, format="WAV")
        try:
            _decode(probe.getvalue())
        except Exception as error:  # ImportError, RuntimeError or OSError, by what of FFmpeg is missing
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(
                f"torchcodec does not decode here ({reason}); install torchcodec and FFmpeg's shared libraries, or "
                "leave decoder out"
            ) from None


def _soundfile(path: str | Path) -> tuple[Tensor, int]:
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError, TypeError) as error:  # soundfile's own is a RuntimeError; TypeError: raw data
        raise _unreadable(path, error) from None
    return torch.from_numpy(samples).t(), rate


def _torchcodec(path: str | Path) -> tuple[Tensor, int]:
    try:
        return _decode(str(path))
    except Exception as error:
        raise _unreadable(path, error) from None


def _decode(source: str | bytes) -> tuple[Tensor, int]:
    decoders = importlib.import_module("torchcodec.decoders")  # rarely installed, so no import that is checked
    samples = decoders.AudioDecoder(source).get_all_samples()
    return samples.data, samples.sample_rate


def _unreadable(path: str | Path, error: Exception) -> UnreadableAudioError:
    if not Path(path).is_file():
        return UnreadableAudioError(f"there is no file {path}")
    if not Path(path).stat().st_size:
        return UnreadableAudioError(f"{path} is empty; replace or remove it")
    return UnreadableAudioError(f"{path} cannot be read as audio: {error}; replace or remove it")
