"""Chorales: music of a few voices on a grid, such as those of Bach."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from relbias.data.chorale_files import NUM_TOKENS, PITCHES, START, read_chorales
from relbias.data.lengths import check_lengths
from relbias.data.order import draws, shuffled
from relbias.data.windows import IGNORED
from relbias.relations.base import check_size

Window = tuple[int, int]
"""The number of a piece and the step at which the window begins."""


class Chorales(LightningDataModule):
    """Windows of pieces, a token for each voice of each step, for the prediction of the next note.

    A batch is tokens (B, length), from the one before the first step of the window on, and the notes that follow each
    (B, length), int64. Windows begin with a bar of a piece, counted from its beginning. Tokens are MIDI pitches, 128
    for a rest and 129 for the beginning of a piece, and at the right of its end, where the targets count in no loss.

    Training windows begin at every bar at which the window fits into the piece, or at the first one. With `transpose`
    each is moved, anew in each epoch, by a random number of semitones that leaves every voice in the range which it has
    in the training part.

    Validation and test windows begin half a window after one another, and the targets of their first half count in no
    loss, but for the first window of a piece: so each note of each piece is predicted once, from all the notes before
    it or from half a window of them or more, and the losses at different lengths are over the same notes.

    Args:
        path: a JSON file, see :func:`~relbias.data.chorale_files.read_chorales`.
        length: tokens of a window; a multiple of two bars.
        batch_size: windows in a batch of the training.
        test_lengths: other lengths of windows that are tested too, increasing, likewise.
        transpose: the most semitones, up or down; 0 for none.
        voices: V, the notes of a step.
        steps_per_bar: S; 16 for bars of four quarters in sixteenths.
        num_workers: processes that load batches.
        fingerprint: of the pieces that are expected; None for those that are found. `relbias fit` keeps in the run
            folder what it found.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> Chorales("chorales.json").setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no file chorales.json; give a JSON file of music with the lists train, valid and test
    """

    def __init__(
        self,
        path: str,
        length: int = 256,
        batch_size: int = 4,
        test_lengths: Sequence[int] = (),
        transpose: int = 6,
        voices: int = 4,
        steps_per_bar: int = 16,
        num_workers: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("length", length), ("batch_size", batch_size), ("voices", voices)):
            check_size(name, size, 1)
        check_size("steps_per_bar", steps_per_bar, 1)
        check_size("transpose", transpose, 0)
        check_size("num_workers", num_workers, 0)
        check_lengths(test_lengths, length)
        self.path = Path(path)
        self.voices = voices
        self.steps_per_bar = steps_per_bar
        for each in (length, *test_lengths):
            self._check(each)
        self.length = length
        self.batch_size = batch_size
        self.test_lengths = list(test_lengths)
        self.transpose = transpose
        self.num_workers = num_workers
        self.fingerprint = fingerprint

    def _check(self, length: int) -> None:
        two_bars = 2 * self.voices * self.steps_per_bar
        if length % two_bars or length < two_bars:
            raise ValueError(
                f"a window of {self.voices} voices and {self.steps_per_bar} steps in a bar has a multiple of "
                f"{two_bars} tokens, two bars; got {length}"
            )

    @property
    def found(self) -> dict[str, Any]:
        """The arguments that :meth:`setup` found, for the configuration of a run."""
        return {} if self.fingerprint is None else {"fingerprint": self.fingerprint}

    def adapt_to(self, task: Any) -> None:
        """Refuses a task whose network has other voices or bars, or knows too few tokens."""
        network: Any = getattr(task, "network", None)
        for name, own in (("voices", self.voices), ("steps_per_bar", self.steps_per_bar)):
            if getattr(network, name, own) != own:
                raise ValueError(
                    f"Chorales has {name} {own} and the network {getattr(network, name)}; give "
                    f"--model.init_args.network.init_args.{name} {own}"
                )
        if getattr(network, "num_tokens", NUM_TOKENS) < NUM_TOKENS:
            raise ValueError(
                f"Chorales has {NUM_TOKENS} different tokens and the network's num_tokens is "
                f"{network.num_tokens}; give --model.init_args.network.init_args.num_tokens {NUM_TOKENS}"
            )

    def setup(self, stage: str | None = None) -> None:
        """Reads the pieces.

        Raises:
            ValueError: as in :func:`~relbias.data.chorale_files.read_chorales`, or a part has no piece, or the pieces
                are not those expected.
        """
        parts = read_chorales(self.path, self.voices)
        hashed = hashlib.sha256()
        for name, pieces in parts.items():
            if not pieces:
                raise ValueError(f"{self.path} has no pieces in {name}; each part needs one at least")
            for piece in pieces:
                hashed.update(f"{name} {len(piece)}:".encode() + piece.numpy().tobytes())
        found = f"{sum(map(len, parts.values()))} pieces, sha256 {hashed.hexdigest()[:16]}"
        if self.fingerprint not in (None, found):
            raise ValueError(
                f"{self.path} has {found}, expected are {self.fingerprint}: the pieces have changed; give those of the "
                "run, or --data.init_args.fingerprint null for a new run"
            )
        self.fingerprint = found
        self.train, self.val, self.test = parts["train"], parts["val"], parts["test"]
        self._shifts = _shifts(self.train, self.transpose)
        steps = self.length // self.voices
        self._windows: list[Window] = [
            (number, start)
            for number, piece in enumerate(self.train)
            for start in range(0, max(1, len(piece) - steps + 1), self.steps_per_bar)
        ]

    def train_dataloader(self) -> DataLoader:
        """Training batches in the order of :func:`~relbias.data.order.shuffled`."""
        numbers: Any = range(len(self._windows))
        sampler = shuffled(numbers, self.trainer)
        make: Any = partial(self._training, sampler)
        return DataLoader(
            dataset=numbers,
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=make,
        )

    def _training(self, sampler: DistributedSampler, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        windows = [self._windows[number] for number in numbers]
        tokens, targets = self._batch(self.train, self.length, windows)
        low, high = self._shifts[[piece for piece, _ in windows]].unbind(1)
        uniform = draws(sampler, torch.tensor(numbers), 1)[:, 0]
        moved = (low + (uniform * (high - low + 1)).long()).clamp(max=high)[:, None]
        tokens, targets = (part.where((part < 0) | (part >= PITCHES), part + moved) for part in (tokens, targets))
        return tokens, targets

    def val_dataloader(self) -> DataLoader:
        """The validation part, each note once."""
        return self._in_order(self.val, self.length)

    def test_dataloader(self) -> list[DataLoader]:
        """The test part in windows of the training's length, and of each of `test_lengths`."""
        return [self.test_dataloader_at(length) for length in (self.length, *self.test_lengths)]

    def test_dataloader_at(self, length: int) -> DataLoader:
        """The test part in windows of another length, each note once.

        Args:
            length: tokens of a window, a multiple of two bars.

        Raises:
            ValueError: another length.
        """
        check_size("length", length, 1)
        self._check(length)
        return self._in_order(self.test, length)

    def predict_dataloader(self) -> DataLoader:
        """The windows of the test part."""
        return self.test_dataloader_at(self.length)

    def _in_order(self, pieces: list[Tensor], length: int) -> DataLoader:
        half = length // self.voices // 2
        windows: Any = [
            (number, start)
            for number, piece in enumerate(pieces)
            for start in range(0, max(1, len(piece) - half), half)
        ]
        size = max(1, self.batch_size * self.length // length)
        make: Any = partial(self._scored, pieces, length)
        return DataLoader(dataset=windows, batch_size=size, num_workers=self.num_workers, collate_fn=make)

    def _scored(self, pieces: list[Tensor], length: int, windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
        tokens, targets = self._batch(pieces, length, windows)
        later = torch.tensor([start > 0 for _, start in windows])
        targets[later, : length // 2] = IGNORED  # they are those of the window before
        return tokens, targets

    def _batch(self, pieces: list[Tensor], length: int, windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
        """Tokens and targets, (B, length) int64 each."""
        tokens = torch.full((len(windows), length), START)
        targets = torch.full((len(windows), length), IGNORED)
        for row, (number, start) in enumerate(windows):
            notes = pieces[number].flatten()
            first = start * self.voices
            follow = notes[first : first + length]
            targets[row, : len(follow)] = follow
            before = notes[max(first - 1, 0) : first + length - 1]
            offset = 0 if first else 1
            tokens[row, offset : offset + len(before)] = before[: length - offset]
        return tokens, targets


def _shifts(pieces: Sequence[Tensor], most: int) -> Tensor:
    """By how many semitones each piece can be moved while each voice stays in its range, (pieces, 2) int64."""
    silent = [torch.where(piece < PITCHES, piece, PITCHES).min(0).values for piece in pieces]
    lowest = torch.stack(silent)
    highest = torch.stack([torch.where(piece < PITCHES, piece, -1).max(0).values for piece in pieces])
    low = torch.where(lowest < PITCHES, lowest.min(0).values - lowest, -most).max(1).values
    high = torch.where(highest >= 0, highest.max(0).values - highest, most).min(1).values
    return torch.stack((low.clamp(-most, 0), high.clamp(0, most)), dim=1)
