"""A new training from the weights of another run, as far as they fit."""

import json
import shutil

import pytest
import torch

from relbias.cli import main as cli
from relbias.cli import weights


def state(path, name="best.ckpt"):
    return torch.load(path / "checkpoints" / name, weights_only=True)["state_dict"]


def frozen(tiny):
    """A training that moves nothing, so that its checkpoint shows what it began with."""
    return [*tiny, "--model.init_args.lr", "0", "--seed_everything", "1"]


def test_all_weights(run_dir, tiny, tmp_path, capsys):
    path = tmp_path / "run"
    assert cli.main(["fit", *frozen(tiny), "--weights", str(run_dir), "--run_dir", str(path)]) == 0
    expected, found = state(run_dir), state(path)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    line = f"weights of {run_dir}/checkpoints/best.ckpt: {len(expected)} loaded\n"
    assert line in capsys.readouterr().out
    record = json.loads((path / "fit.json").read_text())
    assert record["weights"]["checkpoint"] == f"{run_dir}/checkpoints/best.ckpt"
    assert record["weights"]["loaded"] == len(expected)
    assert "resumed_after_epochs" not in record


def test_another_encoding_and_another_size(run_dir, tiny, tmp_path, capsys):
    path, file = tmp_path / "run", run_dir / "checkpoints" / "last.ckpt"
    words = [*frozen(tiny), "-c", "encoding/learned", "--model.init_args.network.init_args.mlp_ratio", "2"]
    assert cli.main(["fit", *words, "--weights", str(file), "--run_dir", str(path)]) == 0
    source, found = state(run_dir, "last.ckpt"), state(path)
    record = json.loads((path / "fit.json").read_text())["weights"]
    assert record["missing"] == sorted(found.keys() - source.keys())
    assert record["unused"] == sorted(source.keys() - found.keys())
    assert record["of another shape"] == [
        "network.blocks.0.mlp.0.bias", "network.blocks.0.mlp.0.weight", "network.blocks.0.mlp.2.weight",
    ]  # fmt: skip
    fitting = found.keys() & source.keys() - set(record["of another shape"])
    assert record["loaded"] == len(fitting) > 10
    assert all(torch.equal(found[name], source[name]) for name in fitting)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("weights of"))
    assert line.startswith(f"weights of {file}: {len(fitting)} loaded; {len(record['missing'])} missing there, ")
    assert "; 3 of another shape, which start anew: network.blocks.0.mlp.0.bias, " in line


def test_begun_again_with_the_weights(run_dir, tiny, tmp_path):
    path = tmp_path / "run"
    assert cli.main(["fit", *frozen(tiny), "--weights", str(run_dir), "--run_dir", str(path)]) == 0
    before = json.loads((path / "fit.json").read_text())
    (path / "fit.json").unlink()
    shutil.rmtree(path / "checkpoints")  # as after a kill in the first epoch
    assert cli.main(["fit", "-c", str(path / "config.yaml"), "--ckpt_path", "last"]) == 0
    assert all(torch.equal(state(path)[name], value) for name, value in state(run_dir).items())
    after = json.loads((path / "fit.json").read_text())
    assert (after["weights"], after["val/loss"]) == (before["weights"], before["val/loss"])


def test_what_cannot_be_loaded(run_dir, tiny, tmp_path, relbias_fails):
    fit = ["fit", *tiny, "--run_dir", tmp_path / "run"]
    line = relbias_fails(*fit, "--weights", tmp_path)
    assert line == f"there is no checkpoint {tmp_path}/checkpoints/best.ckpt; did the training finish its first epoch?"
    line = relbias_fails(*fit, "--weights", tmp_path / "absent")
    assert line == f"there is no {tmp_path}/absent; give --weights a run folder or a checkpoint"
    (tmp_path / "x.ckpt").write_bytes(b"x")
    assert "cannot be read: it is damaged" in relbias_fails(*fit, "--weights", tmp_path / "x.ckpt")
    assert not (tmp_path / "run").exists()


def test_nothing_fits(run_dir):
    model = torch.nn.Linear(3, 2)
    before = model.weight.clone()
    with pytest.raises(
        ValueError, match=r"nothing in .* fits the model: it holds network.*, and the model has bias, we"
    ):
        weights.load_fitting(model, run_dir)
    assert torch.equal(model.weight, before)
