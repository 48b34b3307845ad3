"""Strings of spoken digits, short ones to learn from and long ones for the test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from relbias.data.audio import padded
from relbias.data.digit_recordings import find_recordings, split_recordings
from relbias.data.features import LogMel, normalized
from relbias.data.lengths import check_lengths
from relbias.data.order import shuffled
from relbias.data.parts import NAMES
from relbias.data.waveforms import read_waveform
from relbias.relations.base import check_size

Voices: TypeAlias = dict[str, dict[int, list[Tensor]]]
"""The waveforms (S,) of each speaker and digit."""
_NOISE = 1e-3  # standard deviation of what stands in a pause, where 1 is full scale
_VAL, _TEST = 1, 2  # the seeds of these parts; the training's comes from that of the run


class DigitStrings(LightningDataModule):
    """Digits that one speaker says one after the other, put together from recordings, with pauses at random.

    Before, between and after the digits of a string stand pauses, faint noise of a random duration. Speaker, digits and
    takes are drawn, each as likely as the others. A batch is (features (B, T, F) float32, lengths (B,), targets (B, S),
    target_lengths (B,)), int64: log-mel features with mean 0 and standard deviation 1 over each string, then zeros; and
    the digits, then -1.

    Recordings are parted first, see :func:`~relbias.data.digit_recordings.split_recordings`: those in strings of
    the test are in none of the training. Training strings have from 1 to `length` digits, each as likely for a
    batch, whose strings have as many, so that little is padded; they are drawn anew for each. Validation strings
    and those of the first test dataloader have `length` digits, those of the others as many as `test_lengths` says;
    they are always the same.

    Args:
        path: of a folder with files named `{digit}_{speaker}_{take}.wav`, such as the recordings of the Free Spoken
            Digit Dataset (https://github.com/Jakobovski/free-spoken-digit-dataset).
        length: the most digits in a string of the training.
        test_lengths: other numbers of digits that are tested too, increasing.
        pause: the shortest and the longest, in seconds.
        batch_size: strings in a batch of the training.
        batches_per_epoch: batches of the training, of all processes together.
        num_test: digits of the test at each length, in as many strings as they fill; half as many of the validation.
        sample_rate: in samples per second.
        num_mels: F, the number of mel bands.
        window_ms: the length of a frame's window, in milliseconds.
        hop_ms: from one frame to the next, in milliseconds.
        num_workers: processes that load batches.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> data = DigitStrings("recordings", test_lengths=[2, 8, 32])
        >>> [data.num_strings(length) for length in (4, 2, 8, 32)]
        [480, 960, 240, 60]
    """

    def __init__(
        self,
        path: str | Path,
        length: int = 4,
        test_lengths: Sequence[int] = (),
        pause: tuple[float, float] = (0.05, 0.4),
        batch_size: int = 16,
        batches_per_epoch: int = 150,
        num_test: int = 1920,
        sample_rate: int = 8000,
        num_mels: int = 40,
        window_ms: float = 25.0,
        hop_ms: float = 10.0,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        sizes = {"length": length, "batch_size": batch_size, "batches_per_epoch": batches_per_epoch}
        for name, size in (*sizes.items(), ("num_test", num_test)):
            check_size(name, size, 1)
        check_size("num_workers", num_workers, 0)
        check_lengths(test_lengths, length, "digits")
        if not 0 <= pause[0] <= pause[1] < float("inf"):
            raise ValueError(
                f"pause is {tuple(pause)}, expected (shortest, longest) in seconds, 0 <= shortest <= longest"
            )
        self.logmel = LogMel(sample_rate, num_mels, window_ms, hop_ms)
        self.path = path
        self.length = length
        self.test_lengths = list(test_lengths)
        self.pause = (pause[0], pause[1])
        self.batch_size = batch_size
        self.batches_per_epoch = batches_per_epoch
        self.num_test = num_test
        self.sample_rate = sample_rate
        self.num_mels = num_mels
        self.num_workers = num_workers
        self._voices: dict[str, Voices] = {}

    def adapt_to(self, task: Any) -> None:
        """Refuses a task whose network takes another number of mel bands."""
        found = getattr(getattr(task, "network", None), "num_mels", self.num_mels)
        if found != self.num_mels:
            raise ValueError(
                f"the data has {self.num_mels} mel bands and the network's num_mels is {found}; give both the same"
            )

    def setup(self, stage: str | None = None) -> None:
        """Reads the recordings, once.

        Raises:
            ValueError: there are none, a part has none, or a file cannot be read.
        """
        if self._voices:
            return
        voices: dict[str, Voices] = {name: {} for name in NAMES}
        for name, part in split_recordings(find_recordings(self.path)).items():
            for recording in part:
                digits = voices[name].setdefault(recording.speaker, {})
                waveform = read_waveform(recording.path, self.sample_rate)
                digits.setdefault(recording.digit, []).append(waveform)
        self._voices = voices

    def size_of(self, batch: tuple[Tensor, ...]) -> int:
        """The most digits in a string of a batch."""
        return int(batch[3].max())

    def num_strings(self, length: int) -> int:
        """The number of test strings of so many digits."""
        return max(1, self.num_test // length)

    def string(self, part: str, length: int, generator: np.random.Generator) -> tuple[Tensor, list[int]]:
        """Draws a string.

        Args:
            part: "train", "val" or "test".
            length: how many digits.
            generator: of all that is drawn.

        Returns:
            Its features (T, F), and the digits.
        """
        speakers = self._voices[part]
        digits = speakers[sorted(speakers)[generator.integers(len(speakers))]]
        labels, pieces = [], [self._pause(generator)]
        for _ in range(length):
            labels.append(sorted(digits)[generator.integers(len(digits))])
            takes = digits[labels[-1]]
            pieces += [takes[generator.integers(len(takes))], self._pause(generator)]
        waveform = torch.cat(pieces)
        missing = max(0, self.logmel.window - len(waveform))
        return normalized(self.logmel(torch.nn.functional.pad(waveform, (0, missing)))), labels

    def _pause(self, generator: np.random.Generator) -> Tensor:
        samples = round(generator.uniform(*self.pause) * self.sample_rate)
        return torch.from_numpy(generator.normal(0.0, _NOISE, samples).astype(np.float32))

    def _training(self, sampler: DistributedSampler, number: int) -> tuple[Tensor, ...]:
        generator = np.random.default_rng([sampler.seed, sampler.epoch, number])
        length = int(generator.integers(1, self.length + 1))
        return _batch([self.string("train", length, generator) for _ in range(self.batch_size)])

    def train_dataloader(self) -> DataLoader:
        """Batches that depend on the seed, the epoch and their number in it."""
        numbers: Any = range(self.batches_per_epoch)
        sampler = shuffled(numbers, self.trainer)
        make: Any = partial(self._training, sampler)
        return DataLoader(numbers, None, sampler=sampler, num_workers=self.num_workers, collate_fn=make)

    def val_dataloader(self) -> DataLoader:
        """Strings of the most digits of the training, of other recordings."""
        return self._fixed("val", self.length, max(1, self.num_strings(self.length) // 2), _VAL)

    def test_dataloader(self) -> list[DataLoader]:
        """Test strings of that many digits, and of each number in `test_lengths`."""
        return [self.test_dataloader_at(length) for length in (self.length, *self.test_lengths)]

    def test_dataloader_at(self, length: int) -> DataLoader:
        """Test strings of so many digits, always the same.

        Returns:
            Batches as in the training.
        """
        check_size("length", length, 1)
        return self._fixed("test", length, self.num_strings(length), _TEST)

    def predict_dataloader(self) -> DataLoader:
        """The strings of the first test dataloader."""
        return self.test_dataloader_at(self.length)

    def _fixed(self, part: str, length: int, count: int, seed: int) -> DataLoader:
        starts: Any = range(0, count, self.batch_size)
        make: Any = partial(self._part, part, length, count, seed)
        return DataLoader(starts, None, num_workers=self.num_workers, collate_fn=make)

    def _part(self, part: str, length: int, count: int, seed: int, start: int) -> tuple[Tensor, ...]:
        numbers = range(start, min(start + self.batch_size, count))
        return _batch([self.string(part, length, np.random.default_rng([seed, length, n])) for n in numbers])


def _batch(strings: list[tuple[Tensor, list[int]]]) -> tuple[Tensor, ...]:
    features, lengths = padded([clip for clip, _ in strings])
    targets = torch.full((len(strings), max(len(labels) for _, labels in strings)), -1)
    for row, (_, labels) in zip(targets, strings, strict=True):
        row[: len(labels)] = torch.tensor(labels)
    return features, lengths, targets, torch.tensor([len(labels) for _, labels in strings])
