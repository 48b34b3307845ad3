"""A run folder that was edited, damaged, or is in use: one line, and everything stays as it was."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

from relbias.cli import main as cli
from relbias.tasks import ImageClassification


@pytest.fixture
def path(run_dir, tmp_path):
    """A finished run of one epoch."""
    return shutil.copytree(run_dir, tmp_path / "run")


def longer(path, *words, checkpoint="last"):
    return ["fit", "-c", str(path / "config.yaml"), "--ckpt_path", checkpoint, "--trainer.max_epochs", "2", *words]


def content(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ".lock"}


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def without_last(path):
    (path / "checkpoints" / "last.ckpt").unlink()


def without_record(path):
    without_last(path)
    (path / "fit.json").unlink()
    (path / "metrics.csv").write_text("epoch,step\n0,0\n1,1\n")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: replaced(path / "config.yaml", "dim: 8", "dim: 16"), "does not fit the configuration beside it"),
        (lambda path: replaced(path / "metrics.csv", "step", "stop"), "metrics.csv is damaged: line 2 has not the"),
        (lambda path: (path / "metrics.csv").write_bytes(b"\xff\x00"), "metrics.csv is damaged: line 1 has not the"),
        (lambda path: (path / "metrics.csv").write_text("epoch,step\n0,0\n0,1,2\n"), "is damaged: line 3 has not the"),
        (lambda path: (path / "metrics.csv").write_text("epoch,step\n0,0\n\x00\n0,1\n"), "is damaged: line 3 has not"),
        (lambda path: (path / "fit.json").write_text("[]"), "fit.json holds list, expected a mapping; remove it"),
        (without_last, "last.ckpt, and the run has finished its first epoch; put the file back, or continue from"),
        (without_record, "last.ckpt, and the run has finished its first epoch; put the file back, or continue from"),
    ],
)
def test_a_damaged_run_stays_as_it_was(damage, expected, path, capsys):
    damage(path)
    before = content(path)
    assert cli.main(longer(path)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Seed set")]
    assert len(lines) == 1
    assert expected in lines[0]
    assert content(path) == before


def test_values_of_the_wrong_type(path, relbias_fails):
    line = relbias_fails(*longer(path, "--trainer.max_epochs", "x"))
    assert line == "trainer.max_epochs: expected int or null, got x"


def test_a_damaged_last_checkpoint_is_replaced_by_the_best(path, relbias_fails):
    (path / "checkpoints" / "last.ckpt").write_bytes(b"x")
    assert relbias_fails(*longer(path)).endswith("or continue from best.ckpt with --ckpt_path")
    assert cli.main(longer(path, checkpoint=str(path / "checkpoints" / "best.ckpt"))) == 0
    assert json.loads((path / "fit.json").read_text())["epochs"] == 2


def test_checkpoints_on_another_disk(path, tmp_path):
    (path / "checkpoints").rename(tmp_path / "elsewhere")
    (path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    assert cli.main(longer(path)) == 0


def test_a_run_in_use_keeps_its_configuration(path):
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nsys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(path / ".lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        before = content(path)
        assert cli.main(longer(path)) == 2
        assert content(path) == before
        other.kill()


@pytest.fixture
def stop(monkeypatch):
    """Lets the next trainings fail at their first step."""

    def fail(self, batch, batch_idx):
        raise ValueError("stop")

    def stop():
        monkeypatch.setattr(ImageClassification, "training_step", fail)
        return monkeypatch.undo

    return stop


def test_an_earlier_checkpoint_becomes_the_last(path, stop, capsys):
    earlier = shutil.copy(path / "checkpoints" / "last.ckpt", path / "checkpoints" / "first.ckpt")
    words = longer(path, "--trainer.max_epochs", "3")
    assert cli.main(words) == 0
    expected = (path / "metrics.csv").read_text()
    go_on = stop()
    assert cli.main(longer(path, "--trainer.max_epochs", "4", checkpoint=str(earlier))) == 2
    assert f"the last good checkpoint is {path}/checkpoints/last.ckpt (epoch 0)" in capsys.readouterr().err
    go_on()
    assert cli.main(words) == 0
    assert (path / "metrics.csv").read_text() == expected  # no gap


def test_a_fault_names_the_last_good_checkpoint(path, monkeypatch):
    def fail(self, batch, batch_idx):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ImageClassification, "training_step", fail)
    with pytest.raises(RuntimeError, match="out of memory") as error:
        cli.main(longer(path))
    assert f"the last good checkpoint is {path}/checkpoints/last.ckpt (epoch 0)" in error.value.__notes__[0]


def test_weights_are_found_from_another_folder(run_dir, tiny, tmp_path, stop, monkeypatch):
    shutil.copytree(run_dir, tmp_path / "first")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ["fit", *tiny, "--model.init_args.lr", "0", "--weights", "first", "--run_dir", "second"]
    go_on = stop()
    assert cli.main(words) == 2
    go_on()
    monkeypatch.chdir(tmp_path / "other")
    assert cli.main(["fit", "-c", "../second/config.yaml", "--ckpt_path", "last"]) == 0
    one, other = (
        torch.load(tmp_path / name / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        for name in ("first", "second")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


EARLY = (
    "{class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {monitor: val/loss, min_delta: 9, patience: 1}}"
)


def test_a_training_that_a_callback_has_stopped_is_complete(tiny, tmp_path, capsys):
    path = tmp_path / "run"
    words = ["--trainer.max_epochs", "5", "--trainer.callbacks", EARLY, "--run_dir", str(path)]
    assert cli.main(["fit", *tiny, *words]) == 0
    assert json.loads((path / "fit.json").read_text())["epochs"] == 2
    before = content(path)
    assert cli.main(longer(path)[:5]) == 0
    assert f"the training in {path} is complete" in capsys.readouterr().out
    assert content(path) == before
    assert cli.main(longer(path, "--trainer.max_epochs", "6")) == 0
    assert json.loads((path / "fit.json").read_text())["epochs"] == 3


def test_a_longer_training_begins_with_its_own_learning_rate(tiny, tmp_path):
    path = tmp_path / "run"
    monitor = "{class_path: lightning.pytorch.callbacks.LearningRateMonitor, init_args: {logging_interval: step}}"
    words = ["--model.init_args.warmup_epochs", "0", "--trainer.callbacks", monitor, "--run_dir", str(path)]
    assert cli.main(["fit", *tiny, *words]) == 0
    assert cli.main(longer(path)) == 0
    rows = (path / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("lr-AdamW/pg1")
    rates = [float(row.split(",")[column]) for row in rows[1:] if row.split(",")[column]]
    lr = rates[0]
    # half a cosine over two steps, then the last two of half a cosine over four
    assert rates == pytest.approx([lr, lr / 2, lr / 2, lr * 0.5 * (1 - 2**-0.5)])


def test_the_record_adds_up(path):
    """Time, machines and commits of a training are those of all its parts."""
    file = path / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(file, weights_only=True)
    state = checkpoint["callbacks"]["LastCheckpoint"]
    assert json.loads((path / "fit.json").read_text())["machine"] == state["machines"][0]
    state.update(seconds=1000.0, machines=["another machine"], commits=["another commit"])
    torch.save(checkpoint, file)
    before = json.loads((path / "fit.json").read_text())
    assert cli.main(longer(path)) == 0
    record = json.loads((path / "fit.json").read_text())
    assert 1000 < record["seconds"] < 1500
    assert record["machine"] == f"another machine; {before['machine']}"
    assert record["commit"] == f"another commit; {before['commit']}"
