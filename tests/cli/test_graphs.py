"""Graphs through the program: from the fit to the table."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import relbias
from relbias import resources
from relbias.cli import main as cli

DATA = """
class_path: relbias.data.GraphData
init_args:
  dataset: {class_path: relbias.data.molecules.NCIMolecules, init_args: {limit: 40}}
  batch_size: 8
"""
# Keys that make a run of a recipe of graphs take a second or two.
QUIET = [
    "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
    "--trainer.accelerator", "cpu", "--trainer.log_every_n_steps", "1",
]  # fmt: skip
SMALL = ["--model.init_args.network.init_args.dim", "8", "--model.init_args.network.init_args.depth", "1"]
HEADS = ["--model.init_args.network.init_args.num_heads", "2"]
EPOCHS = ["--trainer.max_epochs", "2"]


@pytest.fixture(scope="module")
def tiny():
    return ["-c", "graph/molecules", "--data", DATA, *SMALL, *HEADS, *QUIET]


@pytest.fixture(scope="module")
def run_dir(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "run"
    assert cli.main(["fit", *tiny, *EPOCHS, "--run_dir", str(path)]) == 0
    return path


def weights(path):
    return torch.load(path / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def test_a_run_tests_and_predicts_from_its_folder_alone(run_dir, capsys):
    data = yaml.safe_load((run_dir / "config.yaml").read_text())["data"]["init_args"]
    assert (data["kind"], data["num_outputs"]) == ("regression", 1)
    assert weights(run_dir)["target_mean"].tolist() == pytest.approx(data["target_mean"])
    assert cli.main(["test", str(run_dir)]) == 0
    assert cli.main(["predict", str(run_dir)]) == 0
    rows = list(csv.DictReader((run_dir / "predictions.csv").open(newline="")))
    errors = [abs(float(row["prediction"]) - float(row["target"])) for row in rows]
    mae = json.loads((run_dir / "test.json").read_text())["test/mae"]
    assert (len(errors), sum(errors) / len(errors)) == (4, pytest.approx(mae, rel=1e-5))
    assert 5 < mae < 500  # in square angstroms


def test_a_training_that_is_continued_is_one_that_never_stopped(tiny, run_dir, tmp_path):
    path = tmp_path / "run"
    assert cli.main(["fit", *tiny, "--trainer.max_epochs", "1", "--run_dir", str(path)]) == 0
    config = yaml.safe_load((path / "config.yaml").read_text())
    config["trainer"]["max_epochs"] = 2
    (path / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert cli.main(["fit", "-c", str(path / "config.yaml"), "--ckpt_path", "last"]) == 0
    own, expected = weights(path), weights(run_dir)
    assert own.keys() == expected.keys()
    assert {name for name in own if not torch.equal(own[name], expected[name])} == set()


def test_changed_data_is_refused(run_dir, tmp_path, capsys):
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    config["data"]["init_args"]["dataset"]["init_args"]["limit"] = 41
    path = tmp_path / "run"
    (path / "checkpoints").mkdir(parents=True)
    (path / "checkpoints" / "best.ckpt").write_bytes((run_dir / "checkpoints" / "best.ckpt").read_bytes())
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    capsys.readouterr()
    assert cli.main(["test", str(path)]) == 2
    assert "the data has changed since the training" in capsys.readouterr().err


def test_the_table_has_a_row_of_message_passing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(resources.find("graph/molecules").read_text())
    words = ["table", "own.yaml", "--seeds", "1", "-c", "network/gin"]
    assert cli.main([*words, "--data", DATA, *SMALL, *QUIET, "-c", "trainer/smoke"]) == 0
    lines = [line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines] == ["encoding", "table (strength=100.0)", "GIN"]
    assert lines[0].startswith("| encoding | mae | rmse | parameters |")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.init_args.network.init_args.num_outputs", "3"], "init_args.num_outputs 1"),
        (["--model.init_args.network.init_args.node_types", "3"], "give node_types="),
        (["-c", "encoding/hops_edges", "--model.init_args.network.init_args.edge_types", "2"], "give edge_types="),
        (["-c", "encoding/alibi"], "alibi"),
        (["--data.init_args.fold", "seed"], "give folds"),
        (["--data.init_args.dataset.init_args.limits", "3"], "did you mean 'limit'?"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(words, message, tiny, tmp_path, capsys):
    path = tmp_path / "run"
    assert cli.main(["fit", *tiny, *words, "--run_dir", str(path)]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Seed set")]
    assert message in line
    assert not path.exists()


def test_a_gin_is_refused_on_images(capsys):
    assert cli.main(["fit", "-c", "vision/digits", "-c", "network/gin"]) == 2
    assert "data.init_args.buckets" in capsys.readouterr().err


def test_check_makes_no_data_set(monkeypatch, capsys):
    from torch_geometric.data import InMemoryDataset

    monkeypatch.setattr(InMemoryDataset, "__init__", lambda *args, **options: pytest.fail("a data set was made"))
    for recipe in ("molecules", "moleculenet", "peptides", "smiles", "tu", "zinc"):
        assert cli.main(["check", f"graph/{recipe}"]) == 0


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_same_batches(tiny, run_dir, tmp_path):
    path = tmp_path / "run"
    two = ["-c", "trainer/ddp", "--trainer.devices", "2", "--trainer.strategy", "ddp_fork"]
    words = ["fit", *tiny, *EPOCHS, *two, "--data.init_args.batch_size", "4", "--run_dir", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(relbias.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "relbias.cli.main", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    own, expected = weights(path), weights(run_dir)
    for name, value in expected.items():
        if name.endswith("k_proj.bias"):  # its gradient is rounding alone: softmax takes no notice of it
            continue
        torch.testing.assert_close(own[name], value, rtol=1e-3, atol=1e-5, msg=name)
    rows = [list(csv.DictReader((folder / "metrics.csv").open(newline=""))) for folder in (path, run_dir)]
    scores = [[float(row["val/mae"]) for row in one if row["val/mae"]] for one in rows]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
