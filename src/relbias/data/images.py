"""Loaders of image files and other images that are transformed one by one."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from relbias.data.order import seeded, shuffled

Transform = Callable[[Any], Tensor]
"""From an image to a (C, height, width) tensor."""


class Numbered(Dataset):
    """Samples with their positions, which their random numbers depend on."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # ty: ignore[invalid-argument-type]

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        image, label = self.dataset[index]
        return image, label, index


def training_batches(
    dataset: Dataset, transform: Transform, batch_size: int, num_workers: int, trainer: Trainer | None
) -> DataLoader:
    """Batches in the order of :func:`~relbias.data.order.shuffled`, each sample with random numbers of its own.

    The random numbers depend on the seed, the epoch and the sample only, not on the number of processes or workers.

    Args:
        dataset: gives (image, label).
        transform: for training; may draw from torch's and Python's random generators.
        batch_size: samples per batch.
        num_workers: processes that load batches.
        trainer: knows the processes and the epoch.

    Returns:
        Batches of images (B, C, height, width) and labels (B,) int64.
    """
    sampler = shuffled(dataset, trainer)
    return DataLoader(
        dataset=Numbered(dataset),
        batch_size=batch_size,
        sampler=sampler,
        num_workers=num_workers,
        collate_fn=partial(_collate, transform, sampler),
    )


def batches(dataset: Dataset, transform: Transform, batch_size: int, num_workers: int) -> DataLoader:
    """Batches in the order of the data set, for evaluation; otherwise as :func:`training_batches`."""
    return DataLoader(
        dataset=Numbered(dataset),
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=partial(_collate, transform, None),
    )


def _collate(
    transform: Transform, sampler: DistributedSampler | None, samples: Sequence[tuple[Any, int, int]]
) -> tuple[Tensor, Tensor]:
    images = []
    for image, _, position in samples:
        if sampler is None:
            images.append(transform(image))
        else:
            with seeded(sampler, position):
                images.append(transform(image))
    return torch.stack(images), torch.tensor([label for _, label, _ in samples])


def split(
    labels: Sequence[int], classes: Sequence[str], val_share: float, test_share: float, seed: int, what: str = "images"
) -> tuple[list[int], list[int], list[int]]:
    """Parts samples into three, each class by the same shares.

    Args:
        labels: of the samples, from 0 to the number of classes - 1.
        classes: the names of the classes, for messages.
        val_share: the share of each class for validation.
        test_share: the share of each class for the test.
        seed: of the split.
        what: the samples are, for messages.

    Returns:
        The positions for training, validation and test, each sorted. A part whose share is not zero has at least one
        sample of each class, and so has the training.

    Raises:
        ValueError: a class has too few samples for that.

    Example:
        >>> split([0] * 5 + [1] * 5, ["cat", "dog"], 0.2, 0.2, seed=0)
        ([1, 2, 3, 5, 6, 7], [4, 8], [0, 9])
    """
    generator = torch.Generator().manual_seed(seed)
    by_class: list[list[int]] = [[] for _ in classes]
    for position, label in enumerate(labels):
        by_class[label].append(position)
    train: list[int] = []
    val: list[int] = []
    test: list[int] = []
    for name, own in zip(classes, by_class, strict=True):
        num_val, num_test = (max(1, round(share * len(own))) if share else 0 for share in (val_share, test_share))
        if len(own) <= num_val + num_test:
            raise ValueError(
                f"class {name!r} has {len(own)} {what}, and {num_val} for validation and {num_test} for the test leave "
                f"none for training; add {what}, or make the shares smaller"
            )
        order = [own[place] for place in torch.randperm(len(own), generator=generator).tolist()]
        val += order[:num_val]
        test += order[num_val : num_val + num_test]
        train += order[num_val + num_test :]
    return sorted(train), sorted(val), sorted(test)
