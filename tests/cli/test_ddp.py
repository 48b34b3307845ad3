"""Two processes, through the program itself, against one process with the same global batch."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import relbias
from relbias.cli import main as cli

PROGRAM = (sys.executable, "-m", "relbias.cli.main")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TWO = ["-c", "trainer/ddp", "--trainer.accelerator", "cpu", "--trainer.devices", "2"]
SIZE = "--data.init_args.batch_size"


@pytest.fixture(scope="session")
def fit(tiny):
    """Two epochs of four batches of augmented digits."""
    return ["fit", *tiny, "--trainer.max_epochs", "2", "--trainer.limit_train_batches", "4"]


@pytest.fixture(scope="module")
def one(fit, tmp_path_factory):
    """The run of one process with batches of 32."""
    path = tmp_path_factory.mktemp("one") / "run"
    assert cli.main([*fit, SIZE, "32", "--run_dir", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def forked(fit, tmp_path_factory):
    """The run of two processes with batches of 16, and what it printed. The second is a fork of the first here, which
    spares the time to import everything twice."""
    path = tmp_path_factory.mktemp("two") / "run"
    return path, run(*PROGRAM, *fit, *TWO, "--trainer.strategy", "ddp_fork", SIZE, "16", "--run_dir", path)


def run(*words, cwd=None):
    environment = {**os.environ, "PYTHONPATH": str(Path(relbias.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def metrics(path):
    rows = csv.DictReader((path / "metrics.csv").open(newline=""))
    return [{name: float(value) for name, value in row.items() if value} for row in rows]


def assert_same_training(path, one):
    """Every logged number and every weight is that of one process, up to rounding."""
    assert len(metrics(one)) == 2 * (4 + 1)
    assert metrics(path) == [pytest.approx(row, rel=1e-5) for row in metrics(one)]
    for name in ("best", "last"):
        own, other = (torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True) for folder in (path, one))
        assert own["global_step"] == other["global_step"]
        assert own["state_dict"].keys() == other["state_dict"].keys()
        for key, value in own["state_dict"].items():
            if not key.endswith("k_proj.bias"):  # softmax cancels it: its gradient is rounding, which Adam enlarges
                torch.testing.assert_close(value, other["state_dict"][key], rtol=1e-5, atol=1e-6)


def test_two_processes_train_as_one(forked, one):
    path, out = forked
    assert_same_training(path, one)
    assert out.count("the run is in") == out.count("val/loss") == 1


def test_the_best_checkpoint_is_the_best_of_all_processes(forked):
    path, _ = forked
    callbacks = torch.load(path / "checkpoints" / "best.ckpt", weights_only=True)["callbacks"].values()
    (state,) = (state for state in callbacks if "best_model_score" in state)
    lowest = min(row["val/loss"] for row in metrics(path) if "val/loss" in row)
    assert state["best_model_score"].item() == pytest.approx(lowest)


def test_one_process_evaluates_the_run(forked, one, tmp_path, capsys):
    results = []
    for path in (forked[0], one):
        capsys.readouterr()
        assert cli.main(["test", str(path)]) == 0
        assert cli.main(["validate", str(path)]) == 0
        out = capsys.readouterr().out
        results.append([line for line in out.splitlines() if line.startswith(("test/", "val/"))])
        output = tmp_path / f"{len(results)}.csv"
        assert cli.main(["predict", str(path), "--trainer.limit_predict_batches", "1.0", "--output", str(output)]) == 0
    assert len(results[0]) == 4
    assert results[0] == results[1]
    assert len((tmp_path / "1.csv").read_text().splitlines()) == 1 + 360  # the names, and every test digit once
    assert cli.main(["plot", "bias", str(forked[0]), "-o", str(tmp_path)]) == 0


@pytest.mark.slow
def test_the_other_process_takes_the_folder_that_the_first_has_chosen(fit, one, tmp_path):
    out = run(*PROGRAM, *fit, *TWO, SIZE, "16", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "runs" / "digits").iterdir()] == ["shaw-seed0"]
    path = tmp_path / "runs" / "digits" / "shaw-seed0"
    assert_same_training(path, one)
    assert out.count("the run is in runs/digits/shaw-seed0 ") == out.count("val/loss") == 1
    assert json.loads((path / "fit.json").read_text())["epochs"] == 2

    out = run(*PROGRAM, "validate", path, "--trainer.devices", "2")
    logged = min(row["val/loss"] for row in metrics(path) if "val/loss" in row)
    assert out.count(f"val/loss      {logged:.4f}") == out.count("val/loss") == 1


@pytest.mark.slow
def test_torchrun_trains_as_one_process(fit, one, tmp_path):
    out = run(*TORCHRUN, *PROGRAM[1:], *fit, *TWO, SIZE, "16", "--run_dir", tmp_path / "run")
    assert_same_training(tmp_path / "run", one)
    assert out.count("the run is in") == 1
