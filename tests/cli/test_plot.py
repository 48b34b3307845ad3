import csv
import shutil
import sys
from pathlib import Path

import pytest

from relbias.cli import main as cli
from relbias.data import Digits
from relbias.tasks import ImageClassification


@pytest.mark.parametrize("figure", ["bias", "curve", "attention", "training"])
def test_pictures_and_their_numbers(figure, run_dir, tmp_path, capsys):
    assert cli.main(["plot", figure, str(run_dir), "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{figure}.png"), str(tmp_path / f"{figure}.csv")]
    assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(csv.DictReader((tmp_path / f"{figure}.csv").open(newline="")))) > 2


def test_pictures_lie_in_the_run_folder_by_default(run_dir):
    assert cli.main(["plot", "bias", str(run_dir)]) == 0
    assert (run_dir / "plots" / "bias.png").is_file()


def test_training_compares_runs(run_dir, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.csv").write_text((run_dir / "metrics.csv").read_text())
    assert cli.main(["plot", "training", str(run_dir), str(tmp_path / "other"), "-o", str(tmp_path)]) == 0
    rows = list(csv.DictReader((tmp_path / "training.csv").open(newline="")))
    assert {row["run"] for row in rows} == {str(run_dir), str(tmp_path / "other")}
    assert {row["metric"] for row in rows} == {"train/loss", "val/loss", "val/accuracy"}


def test_several_runs_have_pictures_of_their_own(run_dir, tmp_path, capsys):
    parent = run_dir.parent.name
    for top in ("a", "b"):  # the last two parts of their paths are the same
        shutil.copytree(run_dir, tmp_path / top / parent / run_dir.name)
    runs = [str(tmp_path / top / parent / run_dir.name) for top in ("a", "b")]
    assert cli.main(["plot", "curve", *runs, "-o", str(tmp_path)]) == 0
    assert {file.name for file in tmp_path.glob("*.png")} == {f"{top}-{parent}-run-curve.png" for top in ("a", "b")}
    assert cli.main(["plot", "curve", str(run_dir), runs[0], runs[0], "-o", str(tmp_path / "new")]) == 0
    names = {f"{run_dir.parent.parent.name}-{parent}-run-curve.png", f"a-{parent}-run-curve.png"}
    assert {file.name for file in (tmp_path / "new").glob("*.png")} == names


def test_what_cannot_be_drawn(run_dir, tmp_path, relbias_fails):
    assert relbias_fails("plot", "bais", run_dir) == "no figure 'bais'; did you mean 'bias'?"
    assert "is not a run folder" in relbias_fails("plot", "bias", tmp_path)
    assert "`relbias fit` writes it" in relbias_fails("plot", "training", tmp_path)
    (tmp_path / "file").write_text("")
    assert "give another folder with -o" in relbias_fails("plot", "bias", run_dir, "-o", tmp_path / "file" / "x")


def test_a_task_without_a_figure_of_attention(run_dir, relbias_fails, monkeypatch):
    monkeypatch.setattr(ImageClassification, "attention_figure", None)
    line = "the attention of ImageClassification is not drawn: it has no attention_figure; known: image"
    assert relbias_fails("plot", "attention", run_dir) == line


def test_data_that_is_gone_is_not_called_unwritable(run_dir, relbias_fails, monkeypatch):
    monkeypatch.setattr(Digits, "prepare_data", lambda data: Path("absent").read_text())
    assert relbias_fails("plot", "attention", run_dir) == "No such file or directory: absent"


def test_a_missing_extra(monkeypatch, run_dir, relbias_fails):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert relbias_fails("plot", "bias", run_dir) == "matplotlib is not installed; run: pip install 'relbias[plot]'"
