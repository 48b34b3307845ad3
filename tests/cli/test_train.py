import csv
import json
import random
import sys

import numpy as np
import pytest
import torch
import yaml

from relbias.cli import main as cli
from relbias.cli import run_folder, train
from relbias.cli.trial import try_batch


def metrics(path):
    return list(csv.DictReader((path / "metrics.csv").open(newline="")))


def test_the_run_folder_holds_everything(run_dir):
    found = {str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file()}
    assert found >= {"config.yaml", "metrics.csv", "fit.json", "checkpoints/best.ckpt", "checkpoints/last.ckpt"}
    record = json.loads((run_dir / "fit.json").read_text())
    assert record["epochs"] == 1
    assert record["seconds"] > 0
    assert record["parameters"] > 0
    assert {"machine", "commit", "command"} <= record.keys()
    names = {name for row in metrics(run_dir) for name, value in row.items() if value}
    assert names == {"epoch", "step", "train/loss", "val/loss", "val/accuracy"}


def test_the_config_is_complete_and_holds_no_place(run_dir):
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert config["model"]["init_args"]["encoding"]["init_args"]["max_distance"] == 3
    assert config["model"]["init_args"]["network"]["init_args"]["mlp_ratio"] == 4.0  # a default
    assert config["seed_everything"] == 0
    assert str(run_dir.parent) not in (run_dir / "config.yaml").read_text()


def test_the_config_gives_the_same_losses_again(run_dir, tmp_path):
    assert cli.main(["fit", "-c", str(run_dir / "config.yaml"), "--run_dir", str(tmp_path / "again")]) == 0
    assert metrics(tmp_path / "again") == metrics(run_dir)
    assert (tmp_path / "again" / "config.yaml").read_text() == (run_dir / "config.yaml").read_text()


def test_the_trial_of_a_batch_changes_nothing(run_dir, tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(train, "try_batch", lambda experiment: None)
    assert cli.main(["fit", *tiny, "--run_dir", str(tmp_path / "run")]) == 0
    assert metrics(tmp_path / "run") == metrics(run_dir)


def test_the_trial_of_a_batch_restores_modes_and_random_states(tiny, monkeypatch):
    experiment = train.build(train.parse(tiny).sources, with_trainer=False)
    modules, seen = list(experiment.model.modules()), []
    modules[3].eval()
    before = [module.training for module in modules]

    def check_batch(batch):
        seen.append((experiment.model.training, torch.is_grad_enabled()))
        torch.rand(1), np.random.rand(), random.random()

    monkeypatch.setattr(experiment.model, "check_batch", check_batch)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    try_batch(experiment)
    assert seen == [(False, False)]
    assert [module.training for module in modules] == before
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == states[1:]


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RuntimeError("mat1 and\nmat2"), ValueError), (IndexError("x"), ValueError), (KeyError("a fault"), KeyError)],
)
def test_errors_of_the_trial(error, raised, tiny, monkeypatch):
    def check_batch(batch):
        raise error

    experiment = train.build(train.parse(tiny).sources, with_trainer=False)
    monkeypatch.setattr(experiment.model, "check_batch", check_batch)
    with pytest.raises(raised, match=r"the network does not take the data: |a fault"):
        try_batch(experiment)
    assert experiment.model.training


def test_another_seed_gives_other_losses(run_dir, tmp_path, tiny):
    assert cli.main(["fit", *tiny, "--seed_everything", "1", "--run_dir", str(tmp_path / "other")]) == 0
    assert metrics(tmp_path / "other") != metrics(run_dir)


def test_test_needs_nothing_but_the_folder(run_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["test", str(run_dir)]) == 0
    out = capsys.readouterr().out
    result = json.loads((run_dir / "test.json").read_text())
    assert set(result) == {"test/accuracy", "test/accuracy_moved", "overrides"}
    assert f"{result['test/accuracy']:.4f}" in out
    assert out.splitlines()[-1].endswith(str(run_dir / "test.json"))
    assert not any(tmp_path.iterdir())  # nothing is written elsewhere
    assert cli.main(["test", str(run_dir), "--trainer.limit_test_batches", "1"]) == 0
    assert "test.json stays: it holds the result of a test without --trainer.limit" in capsys.readouterr().out
    assert json.loads((run_dir / "test.json").read_text()) == result


def test_validate_prints_what_training_logged(run_dir, capsys):
    before = sorted(run_dir.rglob("*"))
    assert cli.main(["validate", str(run_dir)]) == 0
    logged = [row["val/loss"] for row in metrics(run_dir) if row["val/loss"]]
    assert f"val/loss      {float(logged[-1]):.4f}" in capsys.readouterr().out
    assert sorted(run_dir.rglob("*")) == before


def test_predict_never_overwrites(run_dir, tmp_path, capsys, relbias_fails):
    output = tmp_path / "predictions.csv"
    assert cli.main(["predict", str(run_dir), "--output", str(output)]) == 0
    rows = list(csv.DictReader(output.open(newline="")))
    assert list(rows[0]) == ["sample", "label", "prediction", "probability"]
    assert [int(row["sample"]) for row in rows] == list(range(360))
    assert all(0.1 <= float(row["probability"]) <= 1 for row in rows)
    before = output.read_text()
    capsys.readouterr()
    assert "exists; give another file with --output" in relbias_fails("predict", run_dir, "--output", output)
    assert output.read_text() == before


def test_predictions_lie_in_the_run_folder_by_default(run_dir, capsys):
    assert cli.main(["predict", str(run_dir)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"the predictions are in {run_dir / 'predictions.csv'}"
    (run_dir / "predictions.csv").unlink()


def test_runs_are_numbered_and_the_last_line_says_where(tmp_path, monkeypatch, tiny, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("table-seed0", "table-seed0-2"):
        assert cli.main(["fit", *tiny, "-c", "encoding/table"]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith(f"the run is in runs/digits/{name} ")
        assert (tmp_path / "runs" / "digits" / name / "checkpoints" / "last.ckpt").is_file()


def test_a_logger_is_added_to_metrics_csv_and_writes_into_the_folder(tmp_path, tiny):
    path = tmp_path / "run"
    assert cli.main(["fit", *tiny, "-c", "logger/tensorboard", "--run_dir", str(path)]) == 0
    assert list(path.rglob("events.out.tfevents*"))
    assert (path / "metrics.csv").is_file()
    assert "save_dir" not in (path / "config.yaml").read_text()
    assert cli.main(["validate", str(path)]) == 0


def test_a_callback_is_added(tmp_path, tiny):
    callback = "{class_path: lightning.pytorch.callbacks.LearningRateMonitor}"
    assert cli.main(["fit", *tiny, "--trainer.callbacks", callback, "--run_dir", str(tmp_path / "run")]) == 0
    assert any(name.startswith("lr-AdamW") for name in metrics(tmp_path / "run")[0])
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.parametrize(
    "spec",
    [
        "table",
        "{class_path: relbias.encodings.Table}",
        "{class_path: relbias.encodings.Table, init_args: {strength: 0.5}}",  # an option that every encoding has
        "{offset: table, other: {class_path: relbias.encodings.Shaw, init_args: {max_distance: 1}}}",
    ],
)
def test_every_form_of_the_encoding_reaches_the_model(spec, tiny):
    sources = train.parse([*tiny, "--model.init_args.encoding", spec]).sources
    encoding = train.build(sources, with_trainer=False).model.network.blocks[0].attention.encoding
    if spec.startswith("{offset"):
        assert {key: type(part).__name__ for key, part in encoding.encodings.items()} == {
            "offset": "Table",
            "other": "Shaw",
        }
    else:
        assert type(encoding).__name__ == "Table"
        assert (encoding.strength is None) == ("strength" not in spec)


def test_check_builds_recipes_and_configs(tmp_path, capsys):
    tree = tmp_path / "tree.yaml"  # no recipe has trees
    tree.write_text("model: {init_args: {encoding: ast_trans}}")
    names = ["vision/digits", "encoding/table", "encoding/irpe", str(tree), "trainer/smoke", "network/window_sides"]
    assert cli.main(["check", *names]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok  vision/digits"
    assert lines[1].startswith("ok  encoding/table on ")
    assert lines[2] == "ok  encoding/irpe on audio/speech_commands"
    assert lines[3].startswith(f"--  {tree} fits none of the recipes (")
    assert f"; vision/digits with {tree}: 'ast_trans' takes the relation" in lines[3]
    assert f"language/chars with {tree}: 'ast_trans' takes the relation" in lines[3]
    assert lines[4].startswith("ok  trainer/smoke on ")
    assert lines[5] == "ok  network/window_sides on audio/digit_strings"  # other networks have no such option


def test_check_refuses_what_does_not_exist(tmp_path, capsys):
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("model: {init_args: {encoding: shew}}")
    assert cli.main(["check", str(overlay)]) == 2
    assert f"{overlay}: there is no encoding 'shew'" in capsys.readouterr().err


def test_a_configuration_without_a_seed_has_seed_0(tiny):
    config = train.merge(train.parse(tiny).sources)
    del config["seed_everything"]
    assert train.build([("", config)], with_trainer=False).dump()["seed_everything"] == 0


def test_labels():
    assert (
        run_folder.label({"offset": {"class_path": "relbias.encodings.Table", "init_args": {}}, "b": "t5"})
        == "table+t5"
    )
    assert run_folder.label("a/b") == "a_b"


@pytest.mark.parametrize("command", ["fit", "test", "table", "plot"])
def test_training_without_its_extra(command, monkeypatch, run_dir, relbias_fails):
    for name in [name for name in sys.modules if name.startswith(("relbias.cli.", "relbias.tasks", "relbias.data"))]:
        if name != "relbias.cli.main":
            monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        monkeypatch.setitem(sys.modules, name, None)
    argv = {"fit": ["-c", "vision/digits"], "test": [run_dir], "table": ["vision/digits"], "plot": ["bias", run_dir]}
    assert relbias_fails(command, *argv[command]) == "lightning is not installed; run: pip install 'relbias[train]'"
