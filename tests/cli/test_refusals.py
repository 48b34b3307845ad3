"""What fit, validate, test and predict refuse: one line, and nothing is written or overwritten."""

import sys

import pytest
import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.exceptions import SIGTERMException

from relbias.cli import main as cli
from relbias.cli import run_folder
from relbias.tasks import ImageClassification

KEY = "--model.init_args.encoding"

BAD = [
    (["-c", "encoding/t5"], "encoding/t5 and the options given: 't5' takes the relation Sequence"),
    (["--model.init_args.lr", "fast"], "model.init_args.lr: expected float, got fast"),
    (["--model.init_args.network.init_args.in_channels", "3"], "images must be (B, 3, height, width)"),
    (["--model.init_args.num_classes", "5"], "num_classes is 5, and the network maps images (2, 1, 16, 16) to (2, 10)"),
    (
        ["--model.init_args.num_classes", "5", "--model.init_args.network.init_args.num_classes", "5"],
        "num_classes is 5, and the data has labels from 0 to 9, expected 0 to 4",
    ),
    ([KEY, "{a: rope_axial, b: rope_axial}"], "at most one relation may rotate"),
    (["--model", "{class_path: relbias.tasks.Task}"], "relbias.tasks.base.Task, which has no training_step"),
    (["--data", "{class_path: lightning.pytorch.LightningDataModule}"], "`val_dataloader` must be implemented"),
    (["--trainer.max_epochs", "-1"], "the training has no end; give trainer.max_epochs"),
    (["--data.init_args.test_shift", "5"], "test_shift is 5, expected 0 to 4"),
    (["--model.init_args.encoding", "shew"], "did you mean 'shaw'?"),
    (["--trainer.max_epoch", "3"], "did you mean 'max_epochs'?"),
    (["--trainer.accelerator", "none"], "accelerator"),
    (["more"], "fit takes -c RECIPE"),
]


@pytest.mark.parametrize(("argv", "message"), BAD)
def test_bad_input_writes_nothing(argv, message, tmp_path, monkeypatch, tiny, relbias_fails):
    monkeypatch.chdir(tmp_path)
    assert message in relbias_fails("fit", *tiny, *argv)
    assert not any(tmp_path.iterdir())


def test_a_config_without_a_recipe(relbias_fails):
    assert "has no model.class_path; give a recipe first" in relbias_fails("fit", "-c", "encoding/t5")


def test_a_folder_with_a_run_is_not_overwritten(run_dir, tiny, relbias_fails):
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    assert "exists and is not empty; give another with --run_dir" in relbias_fails("fit", *tiny, "--run_dir", run_dir)
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


def test_an_unwritable_run_folder(tmp_path, tiny, relbias_fails):
    file = tmp_path / "file"
    file.write_text("mine")
    line = relbias_fails("fit", *tiny, "--run_dir", file / "run")
    assert line == f"cannot write the run folder {file / 'run'}: Not a directory; give another with --run_dir"
    assert "not empty" in relbias_fails("fit", *tiny, "--run_dir", file)
    assert file.read_text() == "mine"


def test_an_unwritable_default_folder(tmp_path, monkeypatch, tiny, relbias_fails):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("mine")
    assert "cannot write the run folder runs/digits/shaw-seed0: Not a directory" in relbias_fails("fit", *tiny)


def test_a_checkpoint_of_another_encoding(run_dir, tmp_path, relbias_fails):
    text = (run_dir / "config.yaml").read_text()
    config = yaml.safe_load(text)
    config["model"]["init_args"]["encoding"] = "table"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.ckpt").symlink_to(run_dir / "checkpoints" / "best.ckpt")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    line = relbias_fails("test", tmp_path)
    assert (
        "missing network.blocks.0.attention.encoding.table; unexpected network.blocks.0.attention.encoding.keys" in line
    )
    assert not (tmp_path / "test.json").exists()
    config["model"]["init_args"]["encoding"] = {
        "class_path": "relbias.encodings.Shaw",
        "init_args": {"max_distance": 1},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert "of another shape network.blocks.0.attention.encoding.keys" in relbias_fails("test", tmp_path)


def test_a_checkpoint_with_code_in_it_is_refused(run_dir, tmp_path, relbias_fails):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.yaml").write_text((run_dir / "config.yaml").read_text())
    torch.save({"state_dict": {}, "code": print}, tmp_path / "checkpoints" / "best.ckpt")
    assert "cannot be read" in relbias_fails("test", tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", [1], {"state_dict": None}, {"state_dict": {"a": 1}}, {}])
def test_a_damaged_checkpoint(content, tmp_path):
    path = tmp_path / "best.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=r"best.ckpt cannot be read: it is damaged or not one of Lightning's; train"):
        run_folder.load_weights(torch.nn.Linear(1, 1), path)


def test_a_damaged_record(tmp_path):
    (tmp_path / "test.json").write_text("{")
    with pytest.raises(ValueError, match=r"test.json is not JSON: .*; remove it"):
        run_folder.read_json(tmp_path / "test.json")


def test_a_run_folder_whose_configuration_is_no_text(tmp_path, relbias_fails):
    (tmp_path / "config.yaml").write_bytes(b"\xff")
    assert f"{tmp_path / 'config.yaml'} is no text in UTF-8" in relbias_fails("test", tmp_path)


def test_a_folder_that_is_no_run(tmp_path, relbias_fails):
    assert "is not a run folder: it has no config.yaml" in relbias_fails("test", tmp_path)
    assert "takes one run folder, got 0" in relbias_fails("test")


def test_a_run_without_a_checkpoint(run_dir, tmp_path, relbias_fails):
    (tmp_path / "config.yaml").write_text((run_dir / "config.yaml").read_text())
    assert "there is no checkpoint" in relbias_fails("validate", tmp_path)


def test_only_the_trainer_can_be_changed_after_training(run_dir, relbias_fails):
    assert "only trainer applies" in relbias_fails("test", run_dir, "--data.init_args.test_shift", "0")
    assert "only trainer applies" in relbias_fails("test", run_dir, "-c", "encoding/t5")
    assert relbias_fails("test", run_dir, "--x", "0") == "unknown option '--x'; known: --trainer, -c"


def test_a_task_without_the_step_that_is_asked_for(run_dir, monkeypatch, relbias_fails):
    monkeypatch.delattr(ImageClassification, "test_step")
    assert "No `test_step()` method defined" in relbias_fails("test", run_dir)


def test_a_training_that_breaks_off_says_what_it_leaves(tmp_path, tiny, monkeypatch, relbias_fails):
    def refuse(self, batch, batch_idx):
        raise MisconfigurationException("no")

    monkeypatch.setattr(ImageClassification, "training_step", refuse)
    run = tmp_path / "run"
    assert relbias_fails("fit", *tiny, "--run_dir", run) == (
        f"no; the training in {run} is not finished and has no checkpoint yet; "
        f"begin again with: relbias fit -c {run}/config.yaml --ckpt_path last"
    )


def test_a_training_without_a_validation_has_no_result(tmp_path, tiny, relbias_fails):
    line = relbias_fails("fit", *tiny, "--trainer.check_val_every_n_epoch", "2", "--run_dir", tmp_path / "run")
    assert "ended before its first validation, so there is no checkpoints/best.ckpt" in line
    assert not (tmp_path / "run" / "fit.json").exists()


def test_a_training_that_is_terminated_fails(tmp_path, tiny, monkeypatch, capsys):
    def terminate(self, batch, batch_idx):
        raise SIGTERMException

    monkeypatch.setattr(ImageClassification, "training_step", terminate)
    with pytest.raises(SystemExit) as end:
        cli.main(["fit", *tiny, "--run_dir", str(tmp_path / "run")])
    assert end.value.code == 143
    assert f"terminated; the training in {tmp_path / 'run'} is not finished" in capsys.readouterr().err


def test_a_missing_extra(monkeypatch, tiny, relbias_fails):
    for module in ("relbias.data", "relbias.data.digits"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert relbias_fails("fit", *tiny).endswith("sklearn is not installed; run: pip install 'relbias[train]'")


def test_a_missing_logger(monkeypatch, tiny, relbias_fails):
    overlay = "{class_path: lightning.pytorch.loggers.WandbLogger}"
    line = relbias_fails("fit", *tiny, "--trainer.logger", overlay)
    assert "wandb" in line
