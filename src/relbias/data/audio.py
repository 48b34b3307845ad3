"""What the data modules of audio have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from relbias.data.features import LogMel, normalized
from relbias.data.images import Numbered
from relbias.data.lengths import check_lengths
from relbias.data.order import seeded, shuffled
from relbias.data.parts import NAMES
from relbias.relations.base import check_size


class Audio(LightningDataModule):
    """Clips as log-mel features: batches of features (B, T, F) float32, lengths (B,) int64 and labels (B,) int64.

    A clip's features are those of :class:`~relbias.data.features.LogMel` with mean 0 and standard deviation 1 over the
    clip; the first `lengths` frames are the clip's, and those after them are zero. Without `num_frames` clips have
    their own lengths, and T is that of the longest of a batch. With it T is `num_frames`: of a longer clip so many
    frames are cut out, in the training at a random place, drawn anew in each epoch, and from the middle otherwise.

    A subclass defines `read`.

    Args:
        sample_rate: of the waveforms, in samples per second.
        num_mels: F, the number of mel bands.
        window_ms: the length of a frame's window, in milliseconds.
        hop_ms: from one frame to the next, in milliseconds.
        num_frames: T, in frames; None for the clips' own.
        batch_size: clips per batch.
        augment: changes the features (T, F) of a training clip, such as `relbias.data.features.SpecAugment`; it may
            draw from torch's and Python's random generators.
        test_lengths: other lengths at which the test clips are tested too, in frames, increasing.
        num_workers: processes that load batches.
        classes: the names of the classes that are expected; None for those that are found. `relbias fit` keeps in the
            run folder what it found, so that data that has changed is noticed.

    Attributes:
        classes: the names of the classes, in the order of the labels; those expected before :meth:`setup`.
        logmel: makes the features.
        train: gives (waveform (S,), label) of each training clip, once set up; likewise `val` and `test`.

    Raises:
        ValueError: an argument out of its range.
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        num_mels: int = 80,
        window_ms: float = 25.0,
        hop_ms: float = 10.0,
        num_frames: int | None = None,
        batch_size: int = 32,
        augment: Callable[[Any], Any] | None = None,
        test_lengths: Sequence[int] = (),
        num_workers: int = 0,
        classes: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.logmel = LogMel(sample_rate, num_mels, window_ms, hop_ms)
        if num_frames is not None:
            check_size("num_frames", num_frames, 1)
        check_size("batch_size", batch_size, 1)
        check_size("num_workers", num_workers, 0)
        check_lengths(test_lengths, num_frames or 0, "frames")
        self.sample_rate, self.num_mels = sample_rate, num_mels
        self.num_frames = num_frames
        self.batch_size = batch_size
        self.augment = augment
        self.test_lengths = list(test_lengths)
        self.num_workers = num_workers
        self.classes = classes
        self._num_classes: int | None = None

    @abstractmethod
    def read(self) -> tuple[Mapping[str, Dataset], list[str] | None]:
        """The parts train, val and test, data sets of (waveform (S,) float32, label), and the names of the classes.

        A waveform has at least `self.logmel.window` samples. The names are None where labels are no classes.
        """

    def adapt_to(self, task: Any) -> None:
        """Compares a task with the data: the `num_mels` of its `network`, and its `num_classes`, where it has them.

        Raises:
            ValueError: the network takes another number of mel bands.
        """
        found = getattr(getattr(task, "network", None), "num_mels", self.num_mels)
        if found != self.num_mels:
            raise ValueError(
                f"the data has {self.num_mels} mel bands and the network's num_mels is {found}; give both the same"
            )
        self._num_classes = getattr(task, "num_classes", None)

    @property
    def found(self) -> dict[str, Any]:
        """The arguments that :meth:`setup` found, for the configuration of a run."""
        return {} if self.classes is None else {"classes": self.classes}

    def setup(self, stage: str | None = None) -> None:
        """Finds the clips.

        Raises:
            ValueError: there are none, a part has none, or the classes are not those expected or of another number.
        """
        parts, classes = self.read()
        for name in NAMES:
            part: Any = parts[name]
            if not len(part):
                raise ValueError(f"{type(self).__name__} has no clips in its part {name}")
        if classes is not None:
            if self.classes is not None and self.classes != classes:
                new, gone = sorted({*classes} - {*self.classes}), sorted({*self.classes} - {*classes})
                raise ValueError(
                    f"{type(self).__name__} has other classes than expected: it adds {', '.join(new) or 'none'} and "
                    f"lacks {', '.join(gone) or 'none'}"
                )
            if self._num_classes not in (None, len(classes)):
                raise ValueError(
                    f"{type(self).__name__} has {len(classes)} classes and num_classes is {self._num_classes}; give "
                    f"--model.init_args.num_classes {len(classes)} --model.init_args.network.init_args.num_classes "
                    f"{len(classes)}"
                )
        self.classes = classes
        self.train, self.val, self.test = (parts[name] for name in NAMES)

    def features(self, waveform: Tensor, num_frames: int | None = None, *, is_training: bool = False) -> Tensor:
        """The features of a clip.

        Args:
            waveform: (S,), at least a window.
            num_frames: the most frames that are kept; None for all.
            is_training: whether they are cut out at a random place, not in the middle, and augmented.

        Returns:
            (T, F), T at most `num_frames`.
        """
        frames = self.logmel.num_frames(len(waveform))
        if num_frames is not None and frames > num_frames:
            spare = frames - num_frames
            start = int(torch.randint(spare + 1, ())) if is_training else spare // 2
            waveform = waveform[start * self.logmel.hop :][: self.logmel.num_samples(num_frames)]
        features = normalized(self.logmel(waveform))
        return self.augment(features) if is_training and self.augment is not None else features

    def train_dataloader(self) -> DataLoader:
        """Training batches in the order of :func:`~relbias.data.order.shuffled`.

        The random numbers of a clip depend on the seed, the epoch and the clip only.
        """
        sampler = shuffled(self.train, self.trainer)
        return self._loader(self.train, self.num_frames, sampler)

    def val_dataloader(self) -> DataLoader:
        """Validation clips, in order."""
        return self._loader(self.val, self.num_frames)

    def test_dataloader(self) -> list[DataLoader]:
        """Test clips, in order, then the same at each of `test_lengths`."""
        return [self._loader(self.test, self.num_frames), *map(self.test_dataloader_at, self.test_lengths)]

    def test_dataloader_at(self, length: int) -> DataLoader:
        """Test clips at another length: the middle of longer ones, and shorter ones with zeros after them.

        Args:
            length: T, in frames.

        Returns:
            Batches of features (B, length, F), lengths (B,) and labels (B,).
        """
        check_size("length", length, 1)
        return self._loader(self.test, length)

    def predict_dataloader(self) -> DataLoader:
        """Test clips, in order."""
        return self._loader(self.test, self.num_frames)

    def collate(self, features: list[Tensor], labels: list[Any], num_frames: int | None) -> tuple[Tensor, ...]:
        """A batch of clips: (features (B, T, F), lengths (B,), labels (B,)).

        Args:
            features: (T_i, F) of each clip.
            labels: of each clip.
            num_frames: T; None for the longest of the batch.
        """
        return *padded(features, num_frames), torch.tensor(labels)

    def _loader(
        self, dataset: Dataset, num_frames: int | None, sampler: DistributedSampler | None = None
    ) -> DataLoader:
        return DataLoader(
            dataset=Numbered(dataset),
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=partial(self._batch, num_frames, sampler),
        )

    def _batch(
        self, num_frames: int | None, sampler: DistributedSampler | None, samples: list[tuple[Tensor, Any, int]]
    ) -> tuple[Tensor, ...]:
        features = []
        for waveform, _, position in samples:
            if sampler is None:
                features.append(self.features(waveform, num_frames))
            else:
                with seeded(sampler, position):
                    features.append(self.features(waveform, num_frames, is_training=True))
        return self.collate(features, [label for _, label, _ in samples], num_frames)


def padded(features: Sequence[Tensor], num_frames: int | None = None) -> tuple[Tensor, Tensor]:
    """Clips in one tensor, with zeros after those that are shorter.

    Args:
        features: (T_i, F) of each clip.
        num_frames: T, at least the longest; None for the longest.

    Returns:
        (B, T, F), and the lengths (B,) int64.

    Example:
        >>> batch, lengths = padded([torch.ones(3, 2), torch.ones(5, 2)])
        >>> batch.shape, lengths
        (torch.Size([2, 5, 2]), tensor([3, 5]))
    """
    lengths = torch.tensor([len(clip) for clip in features])
    whole = features[0].new_zeros(len(features), num_frames or int(lengths.max()), features[0].shape[1])
    for row, clip in zip(whole, features, strict=True):
        row[: len(clip)] = clip
    return whole, lengths
