"""A training that was killed goes on as if nothing had happened."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import relbias
from relbias import resources
from relbias.cli import main as cli
from relbias.cli.resume import locked
from relbias.tasks import ImageClassification

EPOCHS = 4


def fit_words(tiny, workers=0):
    return [
        *tiny, "--trainer.max_epochs", str(EPOCHS), "--data.init_args.num_workers", str(workers),
        "--model.init_args.network.init_args.dropout", "0.2",
    ]  # fmt: skip


def rows(path):
    return list(csv.DictReader((path / "metrics.csv").open(newline="")))


def weights(path, name):
    return torch.load(path / "checkpoints" / name, weights_only=True)


def killed(moment, count, *words):
    """Runs the training in another process, which kills itself at a moment."""
    environment = {**os.environ, "PYTHONPATH": str(Path(relbias.__file__).parents[1])}
    command = [sys.executable, str(Path(__file__).with_name("kill.py")), moment, str(count), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def resume(path, *words):
    return cli.main(["fit", "-c", str(path / "config.yaml"), "--ckpt_path", "last", *map(str, words)])


def assert_same(path, expected):
    assert rows(path) == rows(expected)
    for name in ("best.ckpt", "last.ckpt"):
        one, other = weights(path, name), weights(expected, name)
        assert one["epoch"] == other["epoch"]
        assert one["state_dict"].keys() == other["state_dict"].keys()
        for key, value in other["state_dict"].items():
            assert torch.equal(one["state_dict"][key], value), (name, key)
    found, wanted = (json.loads((folder / "fit.json").read_text()) for folder in (path, expected))
    for key in ("epochs", "steps", "parameters", "val/loss", "val/accuracy", "train/loss"):
        assert found[key] == wanted[key], key
    assert not list(path.rglob("*.part"))


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A training that was never stopped."""
    path = tmp_path_factory.mktemp("whole") / "run"
    assert cli.main(["fit", *fit_words(tiny), "--run_dir", str(path)]) == 0
    return path


def test_a_killed_training_continues(tiny, whole, tmp_path, capsys):
    path = tmp_path / "run"
    killed("batch", 5, "fit", *fit_words(tiny), "--run_dir", path)  # in the third epoch, of two batches each
    assert weights(path, "last.ckpt")["epoch"] == 1
    path = path.rename(tmp_path / "moved")  # the best checkpoint is found there as well
    assert resume(path) == 0
    assert f"continues after epoch 1 from {path}/checkpoints/last.ckpt" in capsys.readouterr().out
    assert_same(path, whole)
    assert json.loads((path / "fit.json").read_text())["resumed_after_epochs"] == [2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "count"),
    [("batch", 0), ("batch", 3), ("batch", 7), ("validation", 1), ("validation", 4), ("epoch", 1), ("epoch", 3)]
    + [("write", count) for count in range(1, 10)]
    + [("rename", count) for count in range(1, 11)]
    + [("row", 0), ("row", 2), ("record", 0)],
)
def test_killed_at_any_moment(moment, count, tiny, whole, tmp_path):
    path = tmp_path / "run"
    killed(moment, count, "fit", *fit_words(tiny), "--run_dir", path)
    assert resume(path) == 0
    assert_same(path, whole)


@pytest.fixture
def stopped(whole, tmp_path):
    """The folder of a training that was killed in its last epoch."""
    path = tmp_path / "stopped"
    shutil.copytree(whole, path)
    (path / "fit.json").unlink()
    return path


def test_what_can_be_given(whole, stopped, tmp_path, relbias_fails):
    config = stopped / "config.yaml"
    before = {file: file.stat().st_mtime_ns for file in stopped.rglob("*")}
    line = relbias_fails("fit", "-c", "vision/digits", "--ckpt_path", "last")
    assert line.startswith(
        "--ckpt_path continues a run, and vision/digits is not the configuration of a run folder; give"
    )
    for words, expected in (
        (["--run_dir", "x"], "so --run_dir does not apply"),
        (["--weights", "x"], "so --weights does not apply"),
        (["--model.init_args.lr", "1"], "--model.init_args.lr: a run is continued with its own model, data and seed"),
        (["-c", "encoding/table"], "encoding/table: a run is continued with its own model, data and seed"),
        (["--seed_everything", "1"], "--seed_everything: a run is continued with its own"),
    ):
        assert expected in relbias_fails("fit", "-c", config, *words, "--ckpt_path", "last")
    line = relbias_fails("fit", "-c", config, "--ckpt_path", whole / "checkpoints" / "last.ckpt")
    assert "is not a checkpoint of the run" in line
    assert "there is no checkpoint" in relbias_fails("fit", "-c", config, "--ckpt_path", stopped / "x.ckpt")
    assert {file: file.stat().st_mtime_ns for file in stopped.rglob("*")} == before


def test_a_damaged_checkpoint(stopped, relbias_fails):
    file = stopped / "checkpoints" / "last.ckpt"
    file.write_bytes(file.read_bytes()[:1000])
    line = relbias_fails("fit", "-c", stopped / "config.yaml", "--ckpt_path", "last")
    assert line.startswith(f"the checkpoint {file} cannot be read: it is damaged")
    assert rows(stopped)


def test_a_complete_run_stays(whole, capsys):
    before = (whole / "fit.json").read_text()
    assert resume(whole) == 0
    assert f"the training in {whole} is complete" in capsys.readouterr().out
    assert (whole / "fit.json").read_text() == before


def test_killed_before_the_record(whole, stopped):
    assert resume(stopped) == 0
    assert_same(stopped, whole)


def test_killed_before_the_first_checkpoint(whole, stopped, capsys):
    shutil.rmtree(stopped / "checkpoints")
    (stopped / "metrics.csv").write_text("epoch,step,train/loss\n0,0,7.0\n0,1")
    assert resume(stopped) == 0
    assert "was stopped before its first checkpoint and begins again" in capsys.readouterr().out
    assert_same(stopped, whole)


def test_a_recipe_of_that_name_is_no_run_folder(tiny, tmp_path, relbias_fails):
    recipe = tmp_path / "config.yaml"
    recipe.write_text(yaml.safe_dump({"model": {}, "data": {}, "trainer": {"max_epochs": 1}}))
    assert "no model.class_path" in relbias_fails("fit", "-c", recipe, "--ckpt_path", "last")
    shutil.copy(resources.find("vision/digits"), recipe)
    assert f"{tmp_path} is not a run folder" in relbias_fails("fit", "-c", recipe, "--ckpt_path", "last")
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]


def test_a_longer_training(whole, stopped, capsys):
    (stopped / "fit.json").write_text((whole / "fit.json").read_text())
    (stopped / "test.json").write_text("{}")
    assert resume(stopped, "--trainer.max_epochs", EPOCHS + 2) == 0
    assert rows(stopped)[: len(rows(whole))] == rows(whole)
    assert [row["epoch"] for row in rows(stopped) if row["val/loss"]] == [str(epoch) for epoch in range(EPOCHS + 2)]
    assert yaml.safe_load((stopped / "config.yaml").read_text())["trainer"]["max_epochs"] == EPOCHS + 2
    assert json.loads((stopped / "fit.json").read_text())["epochs"] == EPOCHS + 2
    assert not (stopped / "test.json").exists()  # it was about the shorter training


def test_a_worse_epoch_does_not_replace_the_best(stopped, monkeypatch):
    stopped = stopped.rename(stopped.with_name("moved"))
    before = {name: (stopped / "checkpoints" / name).read_bytes() for name in ("best.ckpt", "last.ckpt")}
    monkeypatch.setattr(ImageClassification, "validation_step", lambda self, *batch: self.log("val/loss", 100.0))
    assert resume(stopped, "--trainer.max_epochs", EPOCHS + 1) == 0
    assert rows(stopped)[-1]["val/loss"] == "100.0"
    assert (stopped / "checkpoints" / "best.ckpt").read_bytes() == before["best.ckpt"]
    assert (stopped / "checkpoints" / "last.ckpt").read_bytes() != before["last.ckpt"]


def test_another_checkpoint_of_the_run(whole, tiny, tmp_path):
    path = tmp_path / "run"
    callback = (
        "{class_path: lightning.pytorch.callbacks.ModelCheckpoint, init_args: {save_top_k: -1, filename: '{epoch}'}}"
    )
    assert cli.main(["fit", *fit_words(tiny), "--trainer.callbacks", callback, "--run_dir", str(path)]) == 0
    assert_same(path, whole)
    for epoch in (0, EPOCHS - 1):
        (path / "fit.json").unlink()
        file = path / "checkpoints" / f"epoch={epoch}.ckpt"
        assert cli.main(["fit", "-c", str(path / "config.yaml"), "--ckpt_path", str(file)]) == 0
        assert_same(path, whole)
        assert json.loads((path / "fit.json").read_text())["resumed_after_epochs"] == [epoch + 1]


def test_one_training_at_a_time(stopped):
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(stopped / ".lock")]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        before = rows(stopped)
        with pytest.raises(ValueError, match=f"another process is training in {stopped}"), locked(stopped):
            pass
        assert resume(stopped) == 2
        assert rows(stopped) == before
    finally:
        other.kill()
        other.wait()
    with locked(stopped):  # a killed process holds nothing
        pass


EARLY_STOPPING = "{class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {monitor: val/loss, patience: 20}}"
MONITOR = "{class_path: lightning.pytorch.callbacks.LearningRateMonitor, init_args: {logging_interval: epoch}}"


@pytest.mark.parametrize(
    "words",
    [
        ["--trainer.num_sanity_val_steps", "0"],
        ["--data.init_args.num_workers", "2"],
        ["--trainer.check_val_every_n_epoch", "2"],
        ["--trainer.val_check_interval", "1"],  # after each batch
        ["--trainer.accumulate_grad_batches", "2", "--trainer.limit_train_batches", "3"],
        ["--trainer.callbacks", f"[{EARLY_STOPPING}, {MONITOR}]"],
        ["--trainer.max_steps", "7"],  # ends inside the fourth epoch
    ],
)
def test_every_kind_of_training_continues(words, tiny, tmp_path, monkeypatch):
    """Stopped by an error, which is faster than by a kill, inside the second epoch."""
    words = [*fit_words(tiny), *words]
    expected, path = tmp_path / "whole", tmp_path / "run"
    assert cli.main(["fit", *words, "--run_dir", str(expected)]) == 0
    step, calls = ImageClassification.training_step, []

    def fail(self, batch, batch_idx):
        calls.append(batch_idx)
        if len(calls) > 3:
            raise ValueError("stop")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(ImageClassification, "training_step", fail)
    assert cli.main(["fit", *words, "--run_dir", str(path)]) == 2
    monkeypatch.setattr(ImageClassification, "training_step", step)
    assert resume(path) == 0
    assert_same(path, expected)
