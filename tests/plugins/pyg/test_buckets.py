"""Batches of graphs of similar size."""

from itertools import chain

import lightning
import pytest
import torch
from tests.plugins.pyg.graphs import random_graph
from torch.utils.data import Subset
from torch_geometric.data import InMemoryDataset
from torch_geometric.loader import DataLoader

from relbias.plugins.pyg import BucketSampler

SIZES = torch.randint(1, 60, (331,), generator=torch.Generator().manual_seed(1))


def padded(batches):
    return sum(len(batch) * int(SIZES[batch].max()) for batch in batches)


def test_every_graph_once_in_batches_of_the_size():
    sampler = BucketSampler(SIZES, 8, seed=0)
    batches = list(sampler)
    assert sorted(number for batch in batches for number in batch) == list(range(331))
    assert sorted(map(len, batches)) == [3] + [8] * 41
    assert len(sampler) == len(batches) == 42


def test_pads_less_than_any_order():
    generator = torch.Generator().manual_seed(2)
    plain = padded([batch.tolist() for batch in torch.randperm(331, generator=generator).split(8)])
    least, real = padded(list(BucketSampler(SIZES, 8, shuffle=False))), int(SIZES.sum())
    assert padded(list(BucketSampler(SIZES, 8, seed=0))) - real < 0.2 * (plain - real)
    assert least - real < 0.1 * (plain - real)


def test_order_is_that_of_the_seed_and_the_epoch():
    one, two = BucketSampler(SIZES, 8, seed=3), BucketSampler(SIZES, 8, seed=3)
    first = list(one)
    assert list(one) == first == list(two)
    one.set_epoch(1)
    later = list(one)
    assert later != first
    assert {frozenset(batch) for batch in later} != {frozenset(batch) for batch in first}
    assert [int(SIZES[batch].max()) for batch in first] != sorted(int(SIZES[batch].max()) for batch in first)
    two.set_epoch(1)
    assert list(two) == later != list(BucketSampler(SIZES, 8, seed=4))
    torch.manual_seed(3)
    torch.rand(5)  # what was drawn since does not matter
    assert list(BucketSampler(SIZES, 8)) == first


def test_without_shuffling_each_epoch_is_the_same():
    sampler = BucketSampler(SIZES, 8, shuffle=False)
    first = list(sampler)
    sampler.set_epoch(4)
    assert list(sampler) == first
    assert SIZES[[number for batch in first for number in batch]].tolist() == sorted(SIZES.tolist())


@pytest.mark.parametrize("count", [331, 330, 4, 1])
@pytest.mark.parametrize("shuffle", [True, False])
def test_processes_share_the_batches(count, shuffle):
    sizes = SIZES[:count]
    parts = [BucketSampler(sizes, 4, shuffle=shuffle, num_replicas=3, rank=rank, seed=5) for rank in range(3)]
    shares = [list(part) for part in parts]
    assert [len(part) for part in parts] == [len(share) for share in shares]
    assert len({tuple(map(len, share)) for share in shares}) == 1  # as many graphs in each step
    seen = [number for share in shares for batch in share for number in batch]
    assert set(seen) == set(range(count))
    assert len(seen) - count == -count % 3
    if count == 330:
        together = [sorted(chain(*batches)) for batches in zip(*shares, strict=True)]
        assert together == [sorted(batch) for batch in BucketSampler(sizes, 12, shuffle=shuffle, seed=5)]


def test_sizes_of_what_is_given(tmp_path):
    graphs = [random_graph(nodes, 2 * nodes, nodes) for nodes in (5, 3, 8, 2)]

    class Fixed(InMemoryDataset):
        def __init__(self, transform=None):
            super().__init__(tmp_path, transform)
            self.data, self.slices = self.collate(graphs)

    def fail(data):
        raise AssertionError("the transform was applied to know a size")

    data_set = Fixed(fail)
    for given, sizes in (
        (graphs, [5, 3, 8, 2]),
        ([5, 3, 8, 2], [5, 3, 8, 2]),
        (data_set, [5, 3, 8, 2]),
        (data_set[[2, 0]], [8, 5]),
        (Subset(data_set, [3, 2]), [2, 8]),
        (Subset(graphs, [3, 2]), [2, 8]),
    ):
        assert BucketSampler(given, 2).sizes.tolist() == sizes


def test_in_the_loader_of_pyg():
    graphs = [random_graph(nodes, 2 * nodes, nodes) for nodes in (9, 3, 8, 2)]
    batches = list(DataLoader(graphs, batch_sampler=BucketSampler(graphs, 2, seed=0), num_workers=1))
    assert sorted(sorted(batch.ptr.diff().tolist()) for batch in batches) == [[2, 3], [8, 9]]


def test_the_trainer_sets_the_epoch():
    seen = []

    class Model(lightning.LightningModule):
        def training_step(self, batch):
            seen.append((self.current_epoch, batch.y.tolist()))

        def configure_optimizers(self):
            return None

    graphs = [random_graph(3, 4, seed) for seed in range(12)]
    sampler = BucketSampler(graphs, 4, seed=0)
    trainer = lightning.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Model(), DataLoader(graphs, batch_sampler=sampler))
    expected = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected += [(epoch, [float(number) for number in batch]) for batch in sampler]
    assert seen == expected


def test_no_graphs():
    assert list(BucketSampler([], 4)) == []
    assert len(BucketSampler([], 4)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), 0), "batch_size"),
        ((("a", 2), 1), "numbers of nodes, got 'a'"),
        (((1, -2), 1), "numbers of nodes, got -2"),
        (((1, 2), 1, 0), "num_replicas"),
        (((1, 2), 1, 2, 2), "rank of 2 processes is from 0 to 1, got 2"),
    ],
)
def test_refuses(arguments, message):
    names = ("data", "batch_size", "num_replicas", "rank")
    with pytest.raises(ValueError, match=message):
        BucketSampler(**dict(zip(names, arguments, strict=False)))
