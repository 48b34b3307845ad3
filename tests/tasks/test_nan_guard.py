"""A training whose numbers break ends at once, and what is on the disk stays good."""

import math
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relbias.tasks import NaNGuard, NonFiniteError
from relbias.tasks.nan_guard import _check_weights

BATCHES = 4


class Regression(LightningModule):
    """Its loss, or a weight after the step, becomes a given value at a given step."""

    def __init__(self, loss=None, weight=None, metric="train/loss"):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.loss, self.weight, self.metric = loss or {}, weight or {}, metric
        self.steps = []

    def training_step(self, batch, batch_idx):
        step = self.trainer.global_step
        self.steps.append(step)
        loss = self.layer(batch[0]).square().mean() * self.loss.get(step, 1.0)
        if self.metric:
            self.log(self.metric, loss)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.steps[-1] in self.weight:
            with torch.no_grad():
                self.layer.bias.fill_(self.weight[self.steps[-1]])

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", torch.tensor(1.0 / (1 + self.trainer.global_step)))  # it seems better each time

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(module, path=None, callbacks=(), guard=None, **options):
    callbacks = [guard or NaNGuard(), *callbacks]
    if path is not None:
        best = ModelCheckpoint(path, "best", monitor="val/loss", save_last=True, enable_version_counter=False)
        callbacks = [best, *callbacks]
    trainer = Trainer(
        accelerator="cpu",
        callbacks=callbacks,
        enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"max_epochs": 4, "num_sanity_val_steps": 0} | options),
    )
    data = DataLoader(TensorDataset(torch.ones(4 * BATCHES, 2)), batch_size=4)
    trainer.fit(module, data, data)
    return trainer


@pytest.fixture
def accelerator(monkeypatch):
    """A callback that makes the device seem to be no CPU once the training has begun."""

    class Pretend(Callback):
        def on_train_start(self, trainer, module):
            monkeypatch.setattr(type(trainer.strategy), "root_device", SimpleNamespace(type="cuda"))
            monkeypatch.setattr(type(trainer.strategy), "batch_to_device", lambda self, batch, **_: batch)

    return Pretend()


def good(path, epoch):
    """Whether a checkpoint is of an epoch and all its numbers are finite."""
    checkpoint = torch.load(path, weights_only=True)
    assert checkpoint["epoch"] == epoch
    assert all(value.isfinite().all() for value in checkpoint["state_dict"].values())
    Regression().load_state_dict(checkpoint["state_dict"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_broken_loss(tmp_path, value):
    module = Regression(loss={9: value})
    line = rf"^train/loss is {value} at step 9 of epoch 2; try a lower learning rate or gradient_clip_val 1\.0$"
    with pytest.raises(NonFiniteError, match=line):
        fit(module, tmp_path)
    assert module.steps[-1] == 9
    good(tmp_path / "best.ckpt", 1)
    good(tmp_path / "last.ckpt", 1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_last_step_that_breaks_the_weights_before_a_save(tmp_path, value):
    """The loss was finite, validation seems better than ever, and the checkpoint is due."""
    module = Regression(weight={7: value})
    line = r"^the weight layer\.bias is not finite after step 7 of epoch 1; try "
    with pytest.raises(NonFiniteError, match=line):
        fit(module, tmp_path)
    good(tmp_path / "best.ckpt", 0)
    good(tmp_path / "last.ckpt", 0)


def test_a_last_step_that_breaks_the_weights_without_a_save(tmp_path):
    """Validation does not improve, so nothing is saved; the training would seem to have succeeded."""

    class Worse(Regression):
        def validation_step(self, batch, batch_idx):
            self.log("val/loss", torch.tensor(1.0 + self.trainer.current_epoch))

    with pytest.raises(NonFiniteError, match=r"layer\.bias is not finite after step 15 of epoch 3; try "):
        fit(Worse(weight={15: math.nan}), tmp_path)
    good(tmp_path / "best.ckpt", 0)


def test_before_the_first_checkpoint(tmp_path):
    with pytest.raises(NonFiniteError, match=r"step 2 of epoch 0; try "):
        fit(Regression(loss={2: math.nan}), tmp_path)
    with pytest.raises(NonFiniteError, match=r"step 3 of epoch 0; try "):
        fit(Regression(weight={3: math.nan}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_a_save_in_the_middle_of_an_epoch(tmp_path, accelerator, broken):
    """After validation in the middle, when neither the epoch nor log_every_n_steps is over."""
    module = Regression(**{broken: {5: math.nan}})
    with pytest.raises(NonFiniteError, match=r"^(train/loss is nan at|the weight layer\.bias is .* after) step 5 of"):
        fit(module, tmp_path, [accelerator], val_check_interval=0.5, log_every_n_steps=100)
    assert module.steps[-1] == 5
    good(tmp_path / "best.ckpt", 0)
    good(tmp_path / "last.ckpt", 0)


def test_saves_within_an_epoch(tmp_path):
    """Another callback saves every step, before this one has read its flag of the step."""
    often = ModelCheckpoint(tmp_path / "often", "{step}", save_top_k=-1, every_n_train_steps=1)
    with pytest.raises(NonFiniteError, match="at step 4 of epoch 1"):
        fit(Regression(loss={4: math.nan}), callbacks=[often])
    assert len(list((tmp_path / "often").iterdir())) == 4
    for step in range(1, 5):
        good(tmp_path / "often" / f"step={step}.ckpt", (step - 1) // BATCHES)


def test_a_loss_that_is_not_logged():
    with pytest.raises(NonFiniteError, match=r"^the loss of training_step is nan at step 1 of"):
        fit(Regression(loss={1: math.nan}, metric=None))


def test_what_to_try_depends_on_what_is_set():
    with pytest.raises(NonFiniteError, match=r"try a lower learning rate or precision 32-true$"):
        fit(Regression(loss={1: math.nan}), gradient_clip_val=0.5, precision="bf16-mixed")


def test_frozen_weights_may_be_anything():
    module = Regression()
    module.mask = nn.Parameter(torch.full((2,), -math.inf), requires_grad=False)
    module.register_buffer("table", torch.full((2,), -math.inf))
    assert fit(module).global_step == 4 * BATCHES


def test_large_weights_are_finite():
    module = Regression()
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    with torch.no_grad():
        module.layer.weight.fill_(3e38)  # whose norm is not
    _check_weights(trainer, module)


def test_steps_that_are_skipped(tmp_path):
    class Skipping(Regression):
        def training_step(self, batch, batch_idx):
            return None if batch_idx % 2 else super().training_step(batch, batch_idx)

    fit(Skipping(), tmp_path, max_epochs=1)


class ByHand(Regression):
    """Optimises by hand and returns the loss of each sample."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.manual_backward(loss)
        self.optimizers().step()
        return torch.stack([torch.zeros_like(loss), loss])


def test_a_loss_for_each_sample():
    fit(ByHand(), max_epochs=1)
    with pytest.raises(NonFiniteError, match=r"^the loss of training_step is -inf at step 1 of epoch 0"):
        fit(ByHand(loss={1: -math.inf}, metric=None), max_epochs=1)


def test_one_guard_for_two_trainings():
    guard = NaNGuard()
    with pytest.raises(NonFiniteError):
        fit(Regression(loss={1: math.nan}), guard=guard)
    fit(Regression(), guard=guard)


@pytest.mark.parametrize(
    ("every", "step", "stopped"), [(4, 5, 7), (3, 3, 3), (100, 5, 7), (1, 5, 5), (3, 4, 5)], ids=str
)
def test_on_an_accelerator_the_flag_is_read_now_and_then(tmp_path, accelerator, every, step, stopped):
    """Every log_every_n_steps steps and at the end of an epoch of 4; the message is of the step that broke."""
    module = Regression(loss={step: math.nan})
    with pytest.raises(NonFiniteError, match=rf"^train/loss is nan at step {step} of epoch {step // 4}; "):
        fit(module, tmp_path, [accelerator], log_every_n_steps=every)
    assert module.steps[-1] == stopped
    if step > 3:
        good(tmp_path / "best.ckpt", 0)


def test_on_an_accelerator_no_step_waits(tmp_path, accelerator, monkeypatch):
    """Only the due steps look at a number; they all find the first one that broke, of several."""
    module = Regression(loss={5: math.inf, 6: math.nan, 7: math.nan})
    reads = []
    check = NaNGuard._check_loss
    monkeypatch.setattr(
        NaNGuard, "_check_loss", lambda self, trainer: (reads.append(trainer.global_step), check(self, trainer))
    )
    with pytest.raises(NonFiniteError, match=r"is inf at step 5 of epoch 1; "):
        fit(module, tmp_path, [accelerator], log_every_n_steps=100)
    assert set(reads) == {4, 8}
