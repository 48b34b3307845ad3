import math

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relbias.encodings import Shaw, Table, create_encoding
from relbias.relations import Grid
from relbias.tasks import ImageClassification, Task, warmup_cosine


def test_the_schedule_is_what_the_formula_gives_by_hand():
    # 4 steps of warm-up, 12 in all: 1/4, 2/4, 3/4, 1, then (1 + cos(pi k / 8)) / 2 for k = 0 ... 7, then 0.
    by_hand = [
        0.25,
        0.5,
        0.75,
        1.0,
        1.0,
        0.9619398,
        0.8535534,
        0.6913417,
        0.5,
        0.3086583,
        0.1464466,
        0.0380602,
        0.0,
        0.0,
    ]
    assert [warmup_cosine(step, 4, 12) for step in range(14)] == pytest.approx(by_hand, abs=1e-7)


def test_no_warmup_and_nothing_but_warmup():
    assert warmup_cosine(0, 0, 10) == 1.0
    assert [warmup_cosine(step, 2, 2) for step in range(3)] == [0.5, 1.0, 0.0]


class _Regression(Task):
    def __init__(self, **options):
        super().__init__(**options)
        self.layer = nn.Linear(2, 1)
        self.rates = []

    def training_step(self, batch, batch_idx):
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return self.layer(batch[0]).square().mean()


def _fit(task, **options):
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(task, DataLoader(TensorDataset(torch.randn(20, 2)), batch_size=5))
    return task


def test_the_rate_changes_after_every_step():
    task = _fit(_Regression(lr=0.1, warmup_epochs=0.5), max_epochs=2)  # 4 batches an epoch: 2 steps of warm-up of 8
    assert task.rates == pytest.approx([0.1 * warmup_cosine(step, 2, 8) for step in range(8)])


def test_the_rate_can_fall_on_a_line():
    task = _fit(_Regression(lr=0.1, warmup_epochs=0.5, decay="linear"), max_epochs=2)
    assert task.rates == pytest.approx([0.05, 0.1, 0.1, 0.1 * 5 / 6, 0.1 * 4 / 6, 0.05, 0.1 * 2 / 6, 0.1 / 6])
    with pytest.raises(ValueError, match="decay is 'step', expected one of cosine, linear"):
        Task(decay="step")


def test_accumulated_batches_are_one_step():
    task = _fit(_Regression(lr=0.1, warmup_epochs=1), max_epochs=2, accumulate_grad_batches=2)
    assert task.rates[::2] == pytest.approx([0.1 * warmup_cosine(step, 2, 4) for step in range(4)])


def test_a_short_training_is_all_warmup():
    task = _fit(_Regression(lr=0.1, warmup_epochs=5), max_epochs=1)
    assert task.rates == pytest.approx([0.025, 0.05, 0.075, 0.1])


def test_max_steps_ends_the_schedule():
    task = _fit(_Regression(lr=0.1, warmup_epochs=0), max_steps=6)
    assert task.rates == pytest.approx([0.1 * warmup_cosine(step, 0, 6) for step in range(6)])


@pytest.mark.filterwarnings("ignore:.*max_epochs.*")
def test_a_training_without_an_end_is_refused():
    with pytest.raises(ValueError, match="has no end"):
        _fit(_Regression(), max_epochs=-1)


@pytest.mark.parametrize("option", ["lr", "weight_decay", "warmup_epochs"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} is {value}"):
        Task(**{option: value})


class _Network(nn.Module):
    def __init__(self, encoding):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm((2, 2))  # its weight has two dimensions
        self.token = nn.Parameter(torch.zeros(4))
        self.table = Table(2, 2, Grid(2, 2), strength=0.1)
        self.sum = create_encoding({"offset": Shaw(2, 2)}, 2, 2)
        self.frozen = nn.Parameter(torch.zeros(2, 2), requires_grad=False)


def test_only_matrices_outside_encodings_are_decayed():
    task = ImageClassification(_Network, "none", weight_decay=0.3)
    decayed, others = task.parameter_groups()
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name.removeprefix("network.") for name, parameter in task.named_parameters()}
    assert [names[id(parameter)] for parameter in decayed["params"]] == ["linear.weight"]
    assert {names[id(parameter)] for parameter in others["params"]} == {
        *("linear.bias", "norm.weight", "norm.bias", "token"),
        *("table.table", "table.strength", "sum.encodings.offset.keys"),
    }


def test_no_hyperparameters_are_saved():
    assert not ImageClassification(_Network, "none").hparams


class _Flat(SingleDeviceStrategy):
    """Makes the optimizer while parameters are flat, as they are when they are sharded."""

    def setup_optimizers(self, trainer):
        shapes = {parameter: parameter.shape for parameter in self.lightning_module.parameters()}
        for parameter in shapes:
            parameter.data = parameter.data.flatten()
        super().setup_optimizers(trainer)
        for parameter, shape in shapes.items():
            parameter.data = parameter.data.view(shape)


def test_what_is_decayed_does_not_change_when_parameters_are_sharded():
    task = _fit(_Regression(), max_epochs=1, strategy=_Flat(device="cpu"))
    decayed, others = task.trainer.optimizers[0].param_groups
    assert decayed["params"] == [task.layer.weight]
    assert others["params"] == [task.layer.bias]
