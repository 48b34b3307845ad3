from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from relbias.data import Digits
from relbias.data.order import draws, shuffled
from relbias.tasks import Task


def of(world_size, global_rank, epoch=0, length=24):
    trainer = SimpleNamespace(
        world_size=world_size,
        global_rank=global_rank,
        current_epoch=epoch,
        _checkpoint_connector=SimpleNamespace(_loaded_checkpoint={}),
    )
    return list(shuffled(range(length), trainer))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize("epoch", [0, 5])
def test_the_batches_of_all_processes_together_are_those_of_one(processes, epoch):
    one = of(1, 0, epoch)
    shares = [of(processes, position, epoch) for position in range(processes)]
    for step in range(24 // (processes * 2)):
        together = {sample for share in shares for sample in share[2 * step : 2 * step + 2]}
        assert together == set(one[2 * processes * step : 2 * processes * (step + 1)])


def test_an_uneven_end_is_filled_with_the_first_samples():
    one, shares = of(1, 0, length=7), [of(3, position, length=7) for position in range(3)]
    assert [len(share) for share in shares] == [3, 3, 3]
    assert sorted(sample for share in shares for sample in share) == sorted([*range(7), *one[:2]])


def test_what_has_been_drawn_makes_no_difference():
    before = of(1, 0)
    torch.rand(100)
    assert of(1, 0) == before
    torch.manual_seed(8)
    assert of(1, 0) != before


def test_draws_depend_on_seed_epoch_and_sample():
    def drawn(samples, seed=7, epoch=0):
        torch.manual_seed(seed)
        sampler = shuffled(range(1000))
        sampler.set_epoch(epoch)
        return draws(sampler, torch.tensor(samples), 2)

    one = drawn([3, 4])
    assert torch.equal(one, drawn([4, 3]).flip(0))
    others = [drawn([3, 4], seed=8), drawn([3, 4], epoch=1), drawn([4, 5])]
    assert not any((one == other).any() for other in others)
    assert not torch.equal(drawn([3], seed=7, epoch=1), drawn([3], seed=8, epoch=0))
    many = drawn(list(range(1000)))
    assert many.min() >= 0
    assert many.max() < 1
    assert abs(many.mean() - 0.5) < 0.04  # six standard deviations


def test_the_largest_seed():
    torch.manual_seed(-1)
    assert sorted(of(1, 0, epoch=3)) == list(range(24))


class _Seen(Task):
    """Trains next to nothing and keeps the batches."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.batches = []

    def training_step(self, batch, batch_idx):
        self.batches.append(batch[0])
        return self.layer(batch[0].mean().view(1, 1)).sum()


def train(max_epochs, num_workers, ckpt_path=None):
    torch.manual_seed(7)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu", max_epochs=max_epochs, limit_train_batches=2, enable_checkpointing=False, **quiet
    )
    task = _Seen()
    trainer.fit(task, datamodule=Digits(num_workers=num_workers), ckpt_path=ckpt_path, weights_only=True)
    return trainer, task.batches


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_training_that_continues_sees_the_batches_of_its_epoch(num_workers, tmp_path):
    train(1, num_workers)[0].save_checkpoint(tmp_path / "first.ckpt")
    _, whole = train(2, num_workers)
    _, second = train(2, num_workers, tmp_path / "first.ckpt")
    assert len(second) == 2
    assert torch.equal(torch.cat(second), torch.cat(whole[2:]))
    assert not torch.equal(torch.cat(second), torch.cat(whole[:2]))
