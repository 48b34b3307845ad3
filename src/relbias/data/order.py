"""The order of training samples and their random numbers, the same for any number of processes."""

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import Dataset, DistributedSampler


def shuffled(dataset: Dataset, trainer: Trainer | None = None) -> DistributedSampler:
    """The samples in an order that depends on the seed and the epoch only; each process takes its share of it.

    The seed is ``torch.initial_seed()``, which ``seed_everything`` sets, whatever has been drawn since. Of P processes
    the p-th takes the samples p, p + P, p + 2 P, ... of the order, so that the batches of size B of all processes
    together are the batches of size P B of one. Where P does not divide the number of samples, up to P - 1 are taken
    twice in an epoch. A Trainer calls ``set_epoch`` and leaves the sampler as it is.

    Args:
        dataset: has a length.
        trainer: knows the processes and the epoch; without one there is one process, and the epoch is 0.

    Returns:
        The ``sampler`` of a DataLoader.

    Example:
        >>> sampler = shuffled(range(6))
        >>> first = list(sampler)
        >>> sampler.set_epoch(1)
        >>> sorted(first), list(sampler) == first
        ([0, 1, 2, 3, 4, 5], False)
    """
    processes, position = (1, 0) if trainer is None else (trainer.world_size, trainer.global_rank)
    seed = torch.initial_seed() % 2**32
    sampler = DistributedSampler(dataset, num_replicas=processes, rank=position, shuffle=True, seed=seed)
    if trainer is not None:
        sampler.set_epoch(_epoch(trainer))  # workers fetch batches before the Trainer does so
    return sampler


def _epoch(trainer: Trainer) -> int:
    """The epoch that a training is in, or continues with: loaders are made before the Trainer's loops are restored."""
    loops = trainer._checkpoint_connector._loaded_checkpoint.get("loops")
    return loops["fit_loop"]["epoch_progress"]["current"]["processed"] if loops else trainer.current_epoch


def draws(sampler: DistributedSampler, samples: Tensor, count: int) -> Tensor:
    """Uniform random numbers that depend on the seed, the epoch and the sample only: for augmentation.

    Args:
        sampler: from :func:`shuffled`; it knows seed and epoch.
        samples: (B,) integers, the positions of the samples in the data set.
        count: numbers for each sample, C.

    Returns:
        (B, C) float32 in [0, 1).

    Example:
        >>> sampler = shuffled(range(6))
        >>> both, one = draws(sampler, torch.tensor([4, 2]), 3), draws(sampler, torch.tensor([2]), 3)
        >>> both.shape, torch.equal(both[1:], one)
        (torch.Size([2, 3]), True)
    """
    rows = [
        np.random.default_rng([sampler.seed, sampler.epoch, sample]).random(count, dtype=np.float32)
        for sample in samples.tolist()
    ]
    return torch.from_numpy(np.stack(rows))


@contextmanager
def seeded(sampler: DistributedSampler, sample: int) -> Generator[None]:
    """Inside, torch's and Python's random numbers depend on the seed, the epoch and the sample only: for augmentation.

    Their generators are afterwards as they were.

    Args:
        sampler: from :func:`shuffled`; it knows seed and epoch.
        sample: the position of the sample in the data set.

    Example:
        >>> sampler = shuffled(range(6))
        >>> with seeded(sampler, 4):
        ...     first = torch.rand(2)
        >>> with seeded(sampler, 4):
        ...     print(torch.equal(torch.rand(2), first))
        True
    """
    state, own = torch.get_rng_state(), random.getstate()
    seed = int(np.random.SeedSequence([sampler.seed, sampler.epoch, sample]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which reaches the generators of devices too
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(own)
