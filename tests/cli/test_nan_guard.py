"""A training that breaks, through the command line: one line, and a run folder that is still of use."""

import csv
import json
import math

import pytest
import torch

from relbias import resources
from relbias.cli import main as cli
from relbias.tasks import ImageClassification


class BreaksLoss(ImageClassification):
    """The loss is NaN in the second batch of epoch 1."""

    def forward(self, images):
        logits = super().forward(images)
        return logits * math.nan if self.training and self.trainer.global_step == 3 else logits


class BreaksWeights(ImageClassification):
    """The last step of epoch 1 makes a weight infinite; validation is better than ever."""

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if (epoch, batch_idx) == (1, 1):
            with torch.no_grad():
                self.network.head.bias[0] = math.inf

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", torch.tensor(-float(self.current_epoch)))
        self.log("val/accuracy", torch.tensor(0.5))


@pytest.mark.parametrize(
    ("task", "what"),
    [(BreaksLoss, "train/loss is nan at step 3"), (BreaksWeights, "the weight network.head.bias is not finite")],
)
def test_a_training_that_breaks(task, what, tiny, tmp_path, capsys):
    path, recipe = tmp_path / "run", tmp_path / "breaks.yaml"
    text = resources.read(resources.find("vision/digits"))
    recipe.write_text(text.replace("relbias.tasks.ImageClassification", f"{__name__}.{task.__name__}"))
    argv = ["fit", "-c", str(recipe), *tiny[2:], "--trainer.max_epochs", "3", "--run_dir", str(path)]
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    line = [line for line in err.splitlines() if not line.startswith("Seed set")]
    assert len(line) == 1
    assert line[0].startswith(f"relbias: error: {what}")
    assert "of epoch 1; try a lower learning rate; " in line[0]
    last = path / "checkpoints" / "last.ckpt"
    assert f"; the training in {path} is not finished; the last good checkpoint is {last} (epoch 0); " in line[0]
    assert out == ""
    for name in ("best", "last"):
        checkpoint = torch.load(path / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert checkpoint["epoch"] == 0
        assert all(value.isfinite().all() for value in checkpoint["state_dict"].values())
    rows = list(csv.DictReader((path / "metrics.csv").open(newline="")))
    assert [row["step"] for row in rows if row["train/loss"]][:3] == ["0", "1", "2"]
    assert cli.main(["test", str(path)]) == 0
    assert math.isfinite(json.loads((path / "test.json").read_text())["test/accuracy"])


def test_a_learning_rate_that_is_far_too_high(tiny, tmp_path, relbias_fails):
    argv = [*tiny, "--model.init_args.lr", "1e30", "--model.init_args.warmup_epochs", "0"]
    line = relbias_fails("fit", *argv, "--trainer.max_epochs", "2", "--run_dir", tmp_path / "run")
    assert line.startswith("train/loss is nan at step 1 of epoch 0; try a lower learning rate; the training in ")
    assert "has no checkpoint yet" in line
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_the_monitor_overlay(tiny, tmp_path):
    path = tmp_path / "run"
    assert cli.main(["fit", *tiny, "-c", "trainer/monitor", "--run_dir", str(path)]) == 0  # two steps: none is due
    assert "attention" not in (path / "metrics.csv").read_text()
    argv = [
        *tiny,
        "--trainer.callbacks",
        "[{class_path: relbias.tasks.AttentionMonitor, init_args: {every_n_steps: 2}}]",
    ]
    path = tmp_path / "watched"
    assert cli.main(["fit", *argv, "--run_dir", str(path)]) == 0
    rows = list(csv.DictReader((path / "metrics.csv").open(newline="")))
    names = {name for row in rows for name, value in row.items() if value and name.startswith("attention/")}
    layer = "attention/blocks.0.attention"
    assert names == {f"{layer}/{name}" for name in ("entropy", "max_logit", "K_min", "K_max")}
    assert {row["step"] for row in rows if row[f"{layer}/entropy"]} == {"1"}
    (plain,) = (r for r in csv.DictReader((tmp_path / "run" / "metrics.csv").open(newline="")) if r["val/loss"])
    assert [row["val/loss"] for row in rows if row["val/loss"]] == [plain["val/loss"]]
    assert cli.main(["plot", "training", str(path), "-o", str(tmp_path / "figures")]) == 0
