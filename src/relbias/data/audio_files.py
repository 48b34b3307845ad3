"""Audio files with a label each."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor
from torch.utils.data import Dataset

from relbias.data.waveforms import Decoder, UnreadableAudioError, check_decoder, read_waveform

Broken = Literal["raise", "skip"]


class AudioFiles(Dataset):
    """Waveforms (S,) float32 of files with their labels, read when they are asked for.

    Args:
        paths: of the files.
        labels: of the files; integers, or what else a collate function takes.
        sample_rate: to which the waveforms are resampled, in samples per second.
        min_samples: the fewest samples that a waveform must have.
        decoder: see :func:`~relbias.data.waveforms.read_waveform`.

    Raises:
        ValueError: there is no such decoder, or it does not work here.

    Example:
        >>> len(AudioFiles(["a.wav", "b.wav"], [0, 1], sample_rate=16000).part([1]))
        1
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        labels: Sequence[Any],
        sample_rate: int,
        min_samples: int = 1,
        decoder: Decoder = "soundfile",
    ) -> None:
        check_decoder(decoder)
        self.paths = [str(path) for path in paths]
        self.labels = list(labels)
        self.sample_rate, self.min_samples = sample_rate, min_samples
        self.decoder: Decoder = decoder

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        path = self.paths[index]
        waveform = read_waveform(path, self.sample_rate, self.decoder)
        if len(waveform) < self.min_samples:
            raise UnreadableAudioError(
                f"{path} has {len(waveform)} samples at a rate of {self.sample_rate}, expected at least "
                f"{self.min_samples}, a window; replace or remove it"
            )
        return waveform, self.labels[index]

    def part(self, positions: Iterable[int]) -> AudioFiles:
        """The files at these positions, in this order."""
        chosen = list(positions)
        paths, labels = ([values[position] for position in chosen] for values in (self.paths, self.labels))
        return AudioFiles(paths, labels, self.sample_rate, self.min_samples, self.decoder)

    def checked(self, broken: Broken) -> AudioFiles:
        """The files that a training may meet.

        Args:
            broken: "raise" gives all, and one that is broken raises when it is read; "skip" reads each once and leaves
                out those that are broken, which a warning names.

        Raises:
            ValueError: another word for `broken`.
        """
        check_broken(broken)
        if broken == "raise":
            return self
        kept, reasons = [], []
        for position in range(len(self)):
            try:
                self[position]
                kept.append(position)
            except UnreadableAudioError as error:
                reasons.append(str(error).removesuffix("; replace or remove it"))
        if reasons:
            more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
            warnings.warn(f"{len(reasons)} files are left out: {'; '.join(reasons[:3])}{more}", stacklevel=2)
        return self.part(kept)


def check_broken(broken: Broken) -> None:
    """Raises ValueError unless the word is known."""
    if broken not in get_args(Broken):
        raise ValueError(f"broken is {broken!r}, expected one of {', '.join(get_args(Broken))}")
