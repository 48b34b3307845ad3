"""A training that is stopped or cannot write keeps its last good checkpoint and names it in one line."""

import csv
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch

from relbias.cli import main as cli
from relbias.cli.atomic import write_atomic
from relbias.cli.metrics_csv import MetricsCSV, cut, read_rows
from relbias.tasks import ImageClassification


@pytest.fixture(scope="module")
def short(tiny, tmp_path_factory):
    """A training of two epochs."""
    path = tmp_path_factory.mktemp("short") / "run"
    assert cli.main(["fit", *tiny, "--trainer.max_epochs", "2", "--run_dir", str(path)]) == 0
    return path


@pytest.fixture
def path(short, tmp_path):
    return shutil.copytree(short, tmp_path / "run")


def longer(path):
    return ["fit", "-c", str(path / "config.yaml"), "--ckpt_path", "last", "--trainer.max_epochs", "3"]


def ending(path, epoch):
    return (
        f"the training in {path} is not finished; the last good checkpoint is {path}/checkpoints/last.ckpt "
        f"(epoch {epoch}); continue with: relbias fit -c {path}/config.yaml --ckpt_path last"
    )


def epochs(path):
    return [row["epoch"] for row in csv.DictReader((path / "metrics.csv").open(newline="")) if row["val/loss"]]


@pytest.mark.parametrize("name", ["checkpoints/last.ckpt", "checkpoints/best.ckpt", "fit.json", "metrics.csv"])
def test_a_full_disk(name, path, capsys):
    file = path / name
    file.with_name(f".{file.name}.part").symlink_to("/dev/full")  # every write there fails as on a full disk
    before = {name: (path / "checkpoints" / name).read_bytes() for name in ("last.ckpt", "best.ckpt")}
    assert cli.main(longer(path)) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Seed set")]
    epoch = 2 if name == "fit.json" else 1
    assert lines == [f"relbias: error: cannot write {file}: No space left on device; {ending(path, epoch)}"]
    assert not list(path.rglob("*.part"))
    after = {name: (path / "checkpoints" / name).read_bytes() for name in before}
    if epoch == 1:
        assert after["last.ckpt"] == before["last.ckpt"]
    if "best" in name:
        assert after == before
    for checkpoint in after:
        assert torch.load(path / "checkpoints" / checkpoint, weights_only=True)["state_dict"]
    assert cli.main(longer(path)) == 0  # there is space again
    assert epochs(path) == ["0", "1", "2"]


@pytest.fixture
def signals():
    """Lightning leaves SIGINT ignored after an interrupt; a shell that starts a background process does so before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "word", "code"), [(signal.SIGTERM, "terminated", 143), (signal.SIGINT, "interrupted", 130)]
)
@pytest.mark.usefixtures("signals")
def test_a_signal(number, word, code, path, monkeypatch, capsys):
    step = ImageClassification.training_step

    def interrupted(self, batch, batch_idx):
        os.kill(os.getpid(), number)
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(ImageClassification, "training_step", interrupted)
        with pytest.raises(SystemExit) as end:
            cli.main(longer(path))
    assert end.value.code == code
    assert f"relbias: error: {word}; {ending(path, 1)}\n" in capsys.readouterr().err
    assert cli.main(longer(path)) == 0
    assert epochs(path) == ["0", "1", "2"]


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    path = tmp_path / "a"
    write_atomic(path, b"one")
    path.with_name(".a.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        write_atomic(path, b"two")
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"one"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "absent" / "a", b"")


@pytest.fixture
def metrics(tmp_path):
    logger = MetricsCSV(tmp_path / "metrics.csv")
    for step in range(3):
        logger.log_metrics({"loss": 1.5, "epoch": step // 2}, step=step)
    logger.save()
    return logger


def test_half_a_row_is_taken_back(metrics):
    """A limit on the size of files, which the row exceeds, stands for the end of the disk."""
    before = metrics.path.read_bytes()
    metrics.log_metrics({"loss": 2.5, "epoch": 1}, step=3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 3, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            metrics.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.filename == str(metrics.path)
    assert metrics.path.read_bytes() == before
    metrics.save()  # the row is not lost
    assert [row["step"] for row in read_rows(metrics.path)] == ["0", "1", "2", "3"]


def test_rows_of_an_earlier_training_stay(metrics):
    with metrics.path.open("a") as file:
        file.write("1,2")  # a kill cut the row off
    cut(metrics.path, 2)
    again = MetricsCSV(metrics.path)
    again.log_metrics({"other": 0.25, "epoch": 1}, step=2)
    again.save()
    assert metrics.path.read_text() == "epoch,loss,other,step\n0,1.5,,0\n0,1.5,,1\n1,,0.25,2\n"
    cut(Path("absent.csv"), 0)
    assert not Path("absent.csv").exists()
