"""The order of training samples in batches of similar size, the same for any number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DistributedSampler

from relbias._buckets import similar_batches
from relbias.data.order import shuffled


class BucketOrder(DistributedSampler):
    """The samples in the order of :func:`~relbias._buckets.similar_batches`, batch after batch, a short one last.

    A Trainer calls ``set_epoch`` and leaves the sampler as it is, also with several processes.

    Args:
        sizes: of the samples, such as the number of nodes of each graph.
        batch_size: B, that of the DataLoader.
        trainer: knows the processes and the epoch; without one there is one process, and the epoch is 0.

    Example:
        >>> list(BucketOrder([9, 2, 8, 3, 9], batch_size=2))[-1] in (0, 4)  # one of the largest, left over
        True
    """

    def __init__(self, sizes: Sequence[int], batch_size: int, trainer: Trainer | None = None) -> None:
        plain = shuffled(sizes, trainer)  # ty: ignore[invalid-argument-type]
        super().__init__(plain.dataset, plain.num_replicas, plain.rank, seed=plain.seed)
        self.set_epoch(plain.epoch)
        self.sizes, self.batch_size = torch.tensor(sizes, dtype=torch.int64), batch_size

    def __iter__(self) -> Iterator[int]:
        batches = similar_batches(
            self.sizes, self.batch_size, self.seed, self.epoch, num_replicas=self.num_replicas, rank=self.rank
        )
        ordered = sorted(batches, key=len, reverse=True)  # stable, and all but one are full
        return (sample for batch in ordered for sample in batch)
