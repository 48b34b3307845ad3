"""What several processes are refused before anything is written; what they do stands in test_ddp.py."""

import sys
from pathlib import Path

import pytest

from relbias.cli import processes

TWO = ["--trainer.strategy", "ddp", "--trainer.devices", "2"]


@pytest.fixture
def torchrun(monkeypatch):
    """The environment that torchrun gives to the first of two processes."""
    variables = {"WORLD_SIZE": 2, "RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0}
    for name, value in {**variables, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))


def test_only_the_command_line_itself_can_be_run_again(tiny, tmp_path, relbias_fails):
    path = tmp_path / "run"
    message = relbias_fails("fit", *tiny, *TWO, "--run_dir", path)
    assert message.startswith("fit would run in 2 processes, which are started by running the command line again")
    assert not path.exists()


def test_the_same_for_an_evaluation(run_dir, relbias_fails):
    assert "validate would run in 2 processes" in relbias_fails("validate", run_dir, *TWO)
    assert "predict writes the samples in their order" in _predict(run_dir, relbias_fails)
    assert not (run_dir / "predictions.csv").exists()


def _predict(run_dir, relbias_fails):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["relbias", "predict", str(run_dir), *TWO])
        return relbias_fails("predict", run_dir, *TWO)


def test_torchrun_and_the_configuration_agree(torchrun, tiny, tmp_path, relbias_fails):
    assert "torchrun started 2 processes, and the configuration makes 1;" in relbias_fails(
        "fit", *tiny, "--run_dir", tmp_path / "run"
    )
    assert not any(tmp_path.iterdir())


def test_torchrun_needs_a_run_folder(torchrun, tiny, tmp_path, monkeypatch, relbias_fails):
    monkeypatch.chdir(tmp_path)
    message = "the 2 processes would not choose the same run folder; give one with --run_dir"
    assert relbias_fails("fit", *tiny, *TWO) == message
    assert not any(tmp_path.iterdir())


def test_several_machines_need_a_run_folder(tiny, tmp_path, monkeypatch, relbias_fails):
    argv = [*tiny, *TWO, "--trainer.num_nodes", "2"]
    monkeypatch.setattr(sys, "argv", ["relbias", "fit", *argv])
    monkeypatch.chdir(tmp_path)
    assert "the 4 processes would not choose the same run folder" in relbias_fails("fit", *argv)
    assert not any(tmp_path.iterdir())


def test_the_first_process_inherits_no_run_folder(monkeypatch):
    with processes.shared(Path("a")):
        assert processes.inherited_run_dir() is None
        monkeypatch.setenv("LOCAL_RANK", "1")
        assert processes.inherited_run_dir() == Path("a")
        with processes.shared(Path("b")):
            assert processes.inherited_run_dir() == Path("b")
        assert processes.inherited_run_dir() == Path("a")
    assert processes.inherited_run_dir() is None


@pytest.mark.parametrize(("devices", "one"), [("auto", 1), (4, 1), ([3, 5], [3]), ("2,3", 1), (None, 1)])
def test_one_device(devices, one):
    assert processes.one_device({"devices": devices})["devices"] == one
