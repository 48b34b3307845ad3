"""Batches of graphs of similar size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler, Subset

from relbias._buckets import similar_batches
from relbias._extras import extra
from relbias.relations.base import check_size

with extra("graph"):
    from torch_geometric.data import Dataset


class BucketSampler(Sampler[list[int]]):
    """Batches of graphs of similar size, so that little is padded where a batch is computed as one tensor.

    The graphs are put into an order that depends on the seed and the epoch only, as by `data.order.shuffled`; those of
    16 batches at a time are sorted by size and cut, and the batches come in random order. Of P processes each takes
    every P-th graph of batches of P B, so those of all processes together are the batches of size P B of one. Where P
    does not divide the number of graphs, up to P - 1 are taken twice in an epoch.

    A Trainer calls `set_epoch`; with several processes it needs `use_distributed_sampler=False`, since the sampler
    shares the graphs out itself.

    Args:
        data: a data set of PyG, a Subset of one, a list of graphs; or (n,) integers, the numbers of nodes.
        batch_size: B.
        shuffle: whether batches come in random order; otherwise all graphs are sorted by size, the same each epoch.
        num_replicas: P, the number of processes.
        rank: which of them this is, from 0.
        seed: of the order; by default `torch.initial_seed()`, which `seed_everything` sets.

    Raises:
        ValueError: an argument does not suit.

    Example:
        >>> sampler = BucketSampler([9, 2, 8, 3], batch_size=2)
        >>> sorted(sorted(batch) for batch in sampler)  # as `batch_sampler` of a DataLoader
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        *,
        shuffle: bool = True,
        num_replicas: int = 1,
        rank: int = 0,
        seed: int | None = None,
    ) -> None:
        check_size("BucketSampler's batch_size", batch_size, 1)
        check_size("BucketSampler's num_replicas", num_replicas, 1)
        check_size("BucketSampler's rank", rank, 0)
        if rank >= num_replicas:
            raise ValueError(f"the rank of {num_replicas} processes is from 0 to {num_replicas - 1}, got {rank}")
        self.sizes = torch.tensor(graph_sizes(data), dtype=torch.int64)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.num_replicas = num_replicas
        self.rank = rank
        self.seed = torch.initial_seed() % 2**32 if seed is None else seed
        self.epoch = 0

    @property
    def sampler(self) -> BucketSampler:
        """Itself: a Trainer sets the epoch of a batch sampler's `sampler`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch.

        Args:
            epoch: from 0.
        """
        self.epoch = epoch

    def __len__(self) -> int:
        """The number of batches of this process."""
        return -(-len(self.sizes) // (self.num_replicas * self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        return similar_batches(
            self.sizes, self.batch_size, self.seed, self.epoch, self.shuffle, self.num_replicas, self.rank
        )


def graph_sizes(data: Any) -> list[int]:
    """The number of nodes of each graph, without the transforms that a data set applies when a graph is taken out.

    Args:
        data: as in :class:`BucketSampler`.

    Raises:
        ValueError: it is nothing of the kind.
    """
    sizes: list[Any]
    if isinstance(data, Tensor):
        sizes = data.tolist()
    elif isinstance(data, Subset):
        inner = graph_sizes(data.dataset)
        sizes = [inner[number] for number in data.indices]
    elif isinstance(data, Dataset):
        sizes = [data.get(number).num_nodes for number in data.indices()]
    else:
        sizes = [getattr(graph, "num_nodes", graph) for graph in data]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        wrong = next(size for size in sizes if not (isinstance(size, int) and size >= 0))
        raise ValueError(f"BucketSampler takes graphs or their numbers of nodes, got {wrong!r}")
    return sizes
