"""Synthesised sequences of tones whose class is their order and their rhythm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from relbias.data.audio import Audio
from relbias.relations.base import check_size

SAMPLE_RATE, NUM_MELS = 8000, 32
TONES = 6
MELODIES = {
    "rising": (0, 1, 2, 3, 4, 5),
    "falling": (5, 4, 3, 2, 1, 0),
    "arch": (0, 2, 4, 5, 3, 1),
    "valley": (5, 3, 1, 0, 2, 4),
}
"""The order of the six tones of a clip, 0 the lowest. Each melody has each tone once."""
RHYTHMS = {"slowing": (6, 9, 12, 15, 18), "quickening": (18, 15, 12, 9, 6)}
"""The pauses between the tones, in frames. Both rhythms have the same pauses."""
TONE = 5  # frames of a tone
MELODY = TONES * TONE + sum(RHYTHMS["slowing"])  # frames from the first tone's begin to the last one's end
_STEP = 2 ** (3 / 12)  # from a tone to the next higher one: a minor third
_FADE = 0.005  # seconds at either end of a tone
_SEEDS = {"train": 0, "val": 1, "test": 2}


class Tones(Audio):
    """Six tones in one of four orders and two rhythms, eight classes, in noise; nothing is downloaded.

    Every class has the same tones, equally long, and the same pauses. No pause is shorter than 6 frames, so that no
    patch of up to 4 frames holds parts of two tones: only the order in time tells the class, and a network that does
    not see it stays at chance, 1 in 8. A clip has its own lowest tone, timbre, loudness and noise, and its melody of 90
    frames begins at a random frame. Clips have `num_frames` frames; those of the other test lengths have longer silence
    before and after the melody, so that it also begins where none did in the training.

    A clip depends on its part and number only. The sample rate is 8000, and there are 32 mel bands, with windows of
    25 ms every 10 ms.

    Args:
        num_frames: T, in frames, at least 90.
        num_train: clips for training.
        num_test: clips for the validation, and for the test at each length.
        batch_size: clips per batch.
        test_lengths: other lengths that are tested too, in frames, increasing, each at least 90.
        num_workers: processes that load batches.
        classes: see :class:`~relbias.data.Audio`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> data = Tones(num_train=64, num_test=16)
        >>> data.setup()
        >>> features, lengths, labels = next(iter(data.train_dataloader()))
        >>> features.shape, data.classes[:2]
        (torch.Size([32, 128, 32]), ['rising slowing', 'rising quickening'])
    """

    def __init__(
        self,
        num_frames: int = 128,
        num_train: int = 2048,
        num_test: int = 512,
        batch_size: int = 32,
        test_lengths: Sequence[int] = (),
        num_workers: int = 0,
        classes: list[str] | None = None,
    ) -> None:
        super().__init__(
            SAMPLE_RATE,
            NUM_MELS,
            num_frames=num_frames,
            batch_size=batch_size,
            test_lengths=test_lengths,
            num_workers=num_workers,
            classes=classes,
        )
        for name, size in (("num_frames", num_frames), *(("a length in test_lengths", each) for each in test_lengths)):
            check_size(name, size, MELODY)
        check_size("num_train", num_train, 1)
        check_size("num_test", num_test, 1)
        self.length = num_frames
        self.sizes = {"train": num_train, "val": num_test, "test": num_test}

    def read(self) -> tuple[dict[str, Dataset], list[str]]:
        """The clips, and the names of the classes: a melody and a rhythm each."""
        parts: dict[str, Dataset] = {name: self._clips(name, self.length) for name in self.sizes}
        return parts, [" ".join(names) for names in product(MELODIES, RHYTHMS)]

    def test_dataloader_at(self, length: int) -> DataLoader:
        """Test clips of another length, with longer silence before and after the melody.

        Args:
            length: T, in frames, at least 90.

        Returns:
            Batches of features (B, length, 32), lengths (B,) and labels (B,).
        """
        check_size("length", length, MELODY)
        return self._loader(self._clips("test", length), length)

    def _clips(self, part: str, frames: int) -> Dataset:
        return _Clips(_SEEDS[part], self.sizes[part], frames, self.logmel.hop, self.logmel.num_samples(frames))


class _Clips(Dataset):
    """Clips of a part: (waveform (S,) float32, label)."""

    def __init__(self, seed: int, number: int, frames: int, hop: int, samples: int) -> None:
        self.seed, self.number, self.frames, self.hop, self.samples = seed, number, frames, hop, samples

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = np.random.default_rng([self.seed, index])
        label = index % (len(MELODIES) * len(RHYTHMS))
        melody, rhythm = list(product(MELODIES.values(), RHYTHMS.values()))[label]
        lowest = generator.uniform(180, 360)  # hertz
        overtones = generator.uniform(0, 0.5, 3)
        start = int(generator.integers(self.frames - MELODY + 1))
        waveform = np.zeros(self.samples)
        for tone, pause in zip(melody, (*rhythm, 0), strict=True):
            sound = _tone(lowest * _STEP**tone, overtones, TONE * self.hop, generator.uniform(0, 2 * np.pi))
            waveform[start * self.hop :][: len(sound)] += sound
            start += TONE + pause
        waveform += generator.normal(0, generator.uniform(0.01, 0.05), self.samples)
        return torch.from_numpy(waveform * generator.uniform(0.1, 0.5)).float(), label


def _tone(hertz: float, overtones: np.ndarray, samples: int, phase: float) -> np.ndarray:
    """A tone and its overtones, (S,), faded in and out."""
    turns = 2 * np.pi * hertz * np.arange(samples) / SAMPLE_RATE + phase
    sound = sum(strength * np.sin(number * turns) for number, strength in enumerate((1.0, *overtones), start=1))
    fade = np.minimum(np.arange(samples), np.arange(samples)[::-1]) / (_FADE * SAMPLE_RATE)
    return sound * fade.clip(0, 1)
