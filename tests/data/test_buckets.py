"""The order of training graphs: batches of similar size, the same for any number of processes."""

from itertools import chain
from types import SimpleNamespace

import pytest
import torch

from relbias.data.buckets import BucketOrder

SIZES = [int(size) for size in torch.randint(1, 60, (203,), generator=torch.Generator().manual_seed(0))]


def trainer(processes=1, rank=0, epoch=0):
    connector = SimpleNamespace(_loaded_checkpoint={})
    return SimpleNamespace(world_size=processes, global_rank=rank, current_epoch=epoch, _checkpoint_connector=connector)


def batches(order, size):
    graphs = list(order)
    assert len(graphs) == len(order)
    return [graphs[start : start + size] for start in range(0, len(graphs), size)]


def padded(cut):
    return sum(len(batch) * max(SIZES[graph] for graph in batch) for batch in cut)


def test_every_graph_comes_once_in_batches_of_similar_size():
    cut = batches(BucketOrder(SIZES, 8), 8)
    assert sorted(chain(*cut)) == list(range(203))
    assert padded(cut) < 1.15 * sum(SIZES) < padded(list(torch.arange(203).split(8)))


def test_epochs_differ_and_the_seed_says_how():
    torch.manual_seed(5)
    order = BucketOrder(SIZES, 8)
    first = list(order)
    order.set_epoch(1)
    second = list(order)
    assert first != second
    assert list(BucketOrder(SIZES, 8, trainer(epoch=1))) == second
    torch.manual_seed(6)
    assert list(BucketOrder(SIZES, 8)) != first


@pytest.mark.parametrize("processes", [2, 3])
def test_the_batches_of_all_processes_together_are_those_of_one(processes):
    torch.manual_seed(0)
    sizes = SIZES[: 200 - 200 % processes]
    one = [set(batch) for batch in batches(BucketOrder(sizes, 4 * processes), 4 * processes)]
    shares = [batches(BucketOrder(sizes, 4, trainer(processes, rank)), 4) for rank in range(processes)]
    assert [set(chain(*parts)) for parts in zip(*shares, strict=True)] == one
