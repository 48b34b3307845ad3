"""Samples in batches of similar size, in an order of their own for each epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

_BATCHES = 16  # sorted by size together: more would pad less, but the same samples would meet in every epoch


def similar_batches(
    sizes: Tensor,
    batch_size: int,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    num_replicas: int = 1,
    rank: int = 0,
) -> Iterator[list[int]]:
    """Batches of samples of similar size, so that little is padded where a batch is computed as one tensor.

    The samples are put into an order that depends on the seed and the epoch only; those of 16 batches at a time are
    sorted by size and cut, and the batches come in random order. Of P processes each takes every P-th sample of batches
    of P B, so those of all processes together are the batches of size P B of one. Where P does not divide the number of
    samples, up to P - 1 are taken twice in an epoch.

    Args:
        sizes: (n,) integers.
        batch_size: B.
        seed: of the order.
        epoch: from 0.
        shuffle: whether batches come in random order; otherwise all samples are sorted by size, the same each epoch.
        num_replicas: P, the number of processes.
        rank: which of them this is, from 0.

    Example:
        >>> batches = similar_batches(torch.tensor([9, 2, 8, 3]), batch_size=2, seed=0, epoch=0)
        >>> sorted(sorted(batch) for batch in batches)
        [[0, 2], [1, 3]]
    """
    count, wide = len(sizes), num_replicas * batch_size
    if not count:
        return
    state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    generator = torch.Generator().manual_seed(int(state[0]))
    order = torch.randperm(count, generator=generator) if shuffle else torch.arange(count)
    shared = -(-count // num_replicas) * num_replicas
    order = order.repeat(-(-shared // count))[:shared]
    batches: list[Tensor] = []
    for pool in order.split(_BATCHES * wide) if shuffle else (order,):
        batches += pool[sizes[pool].argsort(stable=True)].split(wide)
    turns = torch.randperm(len(batches), generator=generator) if shuffle else torch.arange(len(batches))
    for turn in turns.tolist():
        yield batches[turn][rank::num_replicas].tolist()
