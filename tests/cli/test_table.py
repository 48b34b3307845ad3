import json
import shutil

import pytest
import yaml

from relbias import resources
from relbias.cli import main as cli
from relbias.cli import table, train


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(resources.find("vision/digits"), tmp_path / "own.yaml")
    return "own.yaml"


def test_every_encoding_and_seed_once(recipe, tmp_path, tiny, monkeypatch, capsys):
    (tmp_path / "README.md").write_text(
        "# Title\n<!-- relbias table: begin own -->\nold\n<!-- relbias table: end own -->\nend\n"
    )
    argv = ["table", recipe, "--seeds", "2", "-c", "encoding/none", *tiny[2:]]
    assert cli.main(argv) == 0
    assert sorted(path.name for path in (tmp_path / "runs" / "own").iterdir()) == [
        "none-seed0", "none-seed1", "shaw-seed0", "shaw-seed1",
    ]  # fmt: skip
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# Title\n<!-- relbias table: begin own -->\n| encoding | accuracy, % | accuracy moved, % |")
    assert text.endswith("<!-- relbias table: end own -->\nend\n")
    assert "old" not in text
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["encoding", "shaw (max_distance=3)", "none"]
    assert "relbias table own.yaml --seeds 2 -c encoding/none" in text

    monkeypatch.setattr(train, "fit", lambda argv: pytest.fail("a finished run was repeated"))
    (tmp_path / "runs" / "own" / "none-seed1" / "test.json").unlink()  # only the test is missing: it is done again
    assert cli.main(argv) == 0
    assert (tmp_path / "README.md").read_text() == text


TASK = """
from collections.abc import Callable

from torch import nn

from relbias.encodings import EncodingSpec
from relbias.tasks import Task


class Regression(Task):
    def __init__(self, network: Callable[[EncodingSpec], nn.Module], encoding: EncodingSpec, lr: float = 1e-3):
        super().__init__(lr=lr)
        self.network = network(encoding)

    def loss(self, batch):
        images, labels = batch
        return (self.network(images).squeeze(-1) - labels).abs().mean()

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(batch))

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        name = ("test/absolute_error", "test/error_moved")[dataloader_idx]
        self.log(name, self.loss(batch), add_dataloader_idx=False)
        if dataloader_idx == 0:
            self.log("test/sign_accuracy", 0.5, add_dataloader_idx=False)
"""


@pytest.fixture
def regression(tmp_path, monkeypatch):
    """A recipe whose task and metrics the library does not know."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_regression.py").write_text(TASK)
    recipe = yaml.safe_load(resources.read(resources.find("vision/digits")))
    network = recipe["model"]["init_args"]["network"]
    network["init_args"].update(num_classes=1, patch_size=4, dim=8, depth=1, num_heads=2)
    recipe["model"] = {
        "class_path": "own_regression.Regression", "init_args": {"encoding": "shaw", "network": network}
    }  # fmt: skip
    recipe["data"]["init_args"].update(test_shift=2, batch_size=16)
    recipe["trainer"] = {
        "accelerator": "cpu", "devices": 1, "max_epochs": 2, "limit_train_batches": 2, "limit_val_batches": 1,
        "limit_test_batches": 1, "log_every_n_steps": 1, "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    (tmp_path / "age.yaml").write_text(yaml.safe_dump(recipe))
    return "age.yaml"


def test_a_recipe_of_another_kind(regression, tmp_path):
    assert cli.main(["table", regression, "--seeds", "2", "-c", "encoding/none"]) == 0
    lines = (tmp_path / "README.md").read_text().splitlines()
    head = "| encoding | absolute error | sign accuracy, % | error moved | parameters | training, s | epochs | seeds |"
    assert lines[1] == head
    runs = [tmp_path / "runs" / "age" / f"none-seed{seed}" for seed in (0, 1)]
    errors = [json.loads((run / "test.json").read_text())["test/absolute_error"] for run in runs]
    mean, spread = sum(errors) / 2, abs(errors[0] - errors[1]) / 2**0.5
    row = lines[4].split(" | ")
    assert (row[0], row[1], row[2]) == ("| none", f"{mean:.3f} ± {spread:.3f}", "50.0 ± 0.0")


def test_a_stopped_run_continues_and_others_stay(regression, tmp_path, capsys):
    argv = ["table", regression, "--seeds", "2"]
    assert cli.main(argv) == 0
    text = (tmp_path / "README.md").read_text()
    stopped, other = (tmp_path / "runs" / "age" / f"shaw-seed{seed}" for seed in (0, 1))
    metrics = (stopped / "metrics.csv").read_text()
    for name in ("fit.json", "test.json"):
        (stopped / name).unlink()
    shutil.rmtree(stopped / "checkpoints")  # killed in its first epoch
    (stopped / "metrics.csv").unlink()
    before = {file: file.stat().st_mtime_ns for file in other.rglob("*")}
    capsys.readouterr()
    assert cli.main(argv) == 0
    assert "the training in runs/age/shaw-seed0 was stopped before its first checkpoint" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "runs" / "age").iterdir()) == ["shaw-seed0", "shaw-seed1"]
    assert (stopped / "metrics.csv").read_text() == metrics
    assert {file: file.stat().st_mtime_ns for file in other.rglob("*")} == before
    results = [
        next(line for line in content.splitlines() if "±" in line).split(" | ")[:4]
        for content in (text, (tmp_path / "README.md").read_text())
    ]
    assert results[0] == results[1]
    (other / "weights.json").write_text("{}")  # one that began from other weights is another experiment
    assert cli.main(argv) == 0
    assert (tmp_path / "runs" / "age" / "shaw-seed1-2" / "fit.json").is_file()


def test_a_run_with_two_schedules_is_another_experiment(regression, tmp_path):
    argv, run = ["table", regression, "--seeds", "1"], tmp_path / "runs" / "age" / "shaw-seed0"
    assert cli.main(argv) == 0
    config = (run / "config.yaml").read_bytes()
    longer = ["--trainer.max_epochs", "3"]
    assert cli.main(["fit", "-c", str(run / "config.yaml"), "--ckpt_path", "last", *longer]) == 0
    assert (run / "begun.yaml").read_bytes() == config
    assert cli.main([*argv, *longer]) == 0
    again = run.with_name("shaw-seed0-2")
    assert (again / "config.yaml").read_bytes() == (run / "config.yaml").read_bytes()
    assert (again / "metrics.csv").read_bytes() != (run / "metrics.csv").read_bytes()
    assert not (again / "begun.yaml").exists()


def test_another_configuration_runs_again(recipe, tmp_path, tiny):
    for rate in ("1e-3", "2e-3"):
        assert cli.main(["table", recipe, "--seeds", "1", *tiny[2:], "--model.init_args.lr", rate]) == 0
    assert len(list((tmp_path / "runs" / "own").iterdir())) == 2


def test_an_encoding_that_does_not_apply_is_told_before_anything_runs(recipe, tmp_path, relbias_fails):
    assert "'t5' takes the relation Sequence" in relbias_fails("table", recipe, "-c", "encoding/t5")
    two = "{a: rope_axial, b: rope_axial}"
    assert "one relation may rotate" in relbias_fails("table", recipe, "--model.init_args.encoding", two)
    (tmp_path / "empty.yaml").write_text("model:\n")
    assert relbias_fails("table", recipe, "-c", "empty.yaml") == "empty.yaml: model is None, expected a mapping"
    line = relbias_fails("table", recipe, "-c", "encoding/table", "--model.init_args.encoding", "none")
    assert line.startswith("--model.init_args.encoding would replace the encoding of every row")
    assert not (tmp_path / "runs").exists()


def test_wrong_arguments(relbias_fails):
    assert "table takes one recipe" in relbias_fails("table")
    assert relbias_fails("table", "vision/digits", "--seeds", "0") == "--seeds is '0', expected a number of at least 1"


def record(accuracy, seconds=60.0, **more):
    return {
        "encoding": "shaw", "parameters": 12345, "seconds": seconds, "epochs": 60, "machine": "M", "commit": "abc",
        "test/accuracy": accuracy, **more,
    }  # fmt: skip


def test_means_and_deviations():
    lines = table.render([[record(0.98, 50), record(0.99, 70), record(1.0, 90)]], "cmd").splitlines()
    assert lines[0] == "| encoding | accuracy, % | parameters | training, s | epochs | seeds |"
    assert lines[2] == "| shaw | 99.0 ± 1.0 | 12,345 | 70 | 60 | 3 |"


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        ([0.12345, 0.12355], "0.1235 ± 0.0001"),
        ([0.012345], "0.01235"),
        ([12.345, 12.365], "12.36 ± 0.01"),
        ([1234.5], "1234"),
        ([0.0, 0.0], "0.000 ± 0.000"),
        ([-3.0], "-3.000"),
        ([1.5e6], "1.500e+06"),
        ([2e-7], "2.000e-07"),
        ([float("nan")], "nan"),
    ],
)
def test_other_numbers_have_four_digits(values, cell):
    runs = [[{**record(0.5), "test/mae": value} for value in values]]
    assert table.render(runs, "cmd").splitlines()[2].split(" | ")[2] == cell


def test_one_seed_has_no_deviation():
    runs = [[record(0.5, **{"test/accuracy_moved": 0.25})]]
    assert table.render(runs, "cmd").splitlines()[2] == "| shaw | 50.0 | 25.0 | 12,345 | 60 | 60 | 1 |"


def test_error_rates_are_in_percent():
    lines = table.render([[record(0.5, **{"test/error_rate_32": 0.0725})]], "cmd").splitlines()
    assert lines[0] == "| encoding | accuracy, % | error rate 32, % | parameters | training, s | epochs | seeds |"
    assert lines[2] == "| shaw | 50.0 | 7.2 | 12,345 | 60 | 60 | 1 |"


def test_a_table_without_a_place_is_appended(tmp_path):
    readme = tmp_path / "README.md"
    table.insert(readme, "a", "one")
    table.insert(readme, "b", "two")
    table.insert(readme, "a", "three")
    assert readme.read_text() == (
        "<!-- relbias table: begin a -->\nthree\n<!-- relbias table: end a -->\n\n"
        "<!-- relbias table: begin b -->\ntwo\n<!-- relbias table: end b -->\n"
    )


@pytest.mark.parametrize("marker", ["begin", "end"])
def test_half_a_pair_of_markers_is_left_alone(tmp_path, marker):
    readme = tmp_path / "README.md"
    readme.write_text(f"<!-- relbias table: {marker} a -->\nmine")
    with pytest.raises(ValueError, match="one of the markers"):
        table.insert(readme, "a", "one")
    assert readme.read_text() == f"<!-- relbias table: {marker} a -->\nmine"


def test_a_full_disk_leaves_the_readme(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("mine")
    (tmp_path / ".README.md.part").symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"cannot write .*README.md: No space left on device; the table is printed"):
        table.insert(readme, "a", "one")
    assert readme.read_text() == "mine"
