"""Source code from the recipes: training, test, and predictions for a user's own files."""

import csv
import json
import re
import shutil

import pytest
import torch
import yaml
from tests.data.code_files import write_code

from relbias.cli import main as cli
from relbias.cli import run_folder

QUIET = ["-c", "trainer/smoke", "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
SMALL = ["--model.init_args.network.init_args", "{dim: 8, depth: 1, num_heads: 2}"]
FILE = """
def clamp(value, low, high):
    if value < low:
        return low
    return min(value, high)


def swap(first, second):
    return second, first
"""
LINE = re.compile(
    r"^(?P<file>.+\.py):(?P<line>\d+):(?P<column>\d+): (?P<name>\w+) in (?P<function>\w+) should perhaps be "
)


def fit(recipe, path, folder, cache, *argv):
    data = ["--data.init_args", f"{{path: {folder}, cache: {cache}, max_tokens: 100}}"]
    argv = ["-c", recipe, *QUIET, *SMALL, *data, *argv, "--run_dir", str(path)]
    assert cli.main(["fit", *argv]) == 0


@pytest.fixture(scope="module", params=["masked_variable", "variable_misuse"])
def run(request, tmp_path_factory):
    """A run whose training files are gone."""
    folder = tmp_path_factory.mktemp("code")
    write_code(folder / "files")
    fit(f"code/{request.param}", folder / "run", folder / "files", folder / "cache")
    assert cli.main(["test", str(folder / "run")]) == 0
    shutil.rmtree(folder / "files")
    shutil.rmtree(folder / "cache")
    return folder / "run"


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "b.py").write_text(FILE)
    (tmp_path / "code" / "a.py").write_text(FILE.replace("clamp", "other"))
    return tmp_path


def predict(capsys, *argv):
    capsys.readouterr()
    assert cli.main(["predict", *map(str, argv)]) == 0
    out, err = capsys.readouterr()
    return out.splitlines(), [line for line in err.splitlines() if not line.startswith("Seed set")]


def test_a_user_s_files_are_judged_without_those_of_the_training(run, files, capsys):
    moved = shutil.copytree(run, files / "moved")
    config = yaml.safe_load((moved / "config.yaml").read_text())
    config["trainer"]["enable_progress_bar"] = None  # the recipe's own; a bar would stand among the lines
    (moved / "config.yaml").write_text(yaml.safe_dump(config))
    before = sorted(path.name for path in moved.rglob("*"))
    out, err = predict(capsys, moved, "code", "--threshold", "0", "--output", "found.csv")
    rows = list(csv.DictReader((files / "found.csv").open(newline="")))
    assert list(rows[0]) == ["file", "line", "column", "function", "name", "suggestion", "probability"]
    assert len(rows) == len(out) > 0
    for line, row in zip(out, rows, strict=True):
        found = LINE.match(line)
        assert {name: row[name] for name in found.groupdict()} == found.groupdict()
        assert line.endswith(f"{row['suggestion']} ({float(row['probability']):.2f})")
        text = (files / row["file"]).read_text().split("\n")[int(row["line"]) - 1]
        assert text[int(row["column"]) - 1 :].startswith(row["name"])
        assert 0 <= float(row["probability"]) <= 1
    places = [(row["file"], int(row["line"]), int(row["column"])) for row in rows]
    assert places == sorted(places)
    assert {row["file"] for row in rows} == {"code/a.py", "code/b.py"}
    assert err == [
        f"{len(out)} of 14 uses of variables look wrong, in 2 files",
        "the predictions are in found.csv",
    ]
    assert sorted(path.name for path in moved.rglob("*")) == before
    out, err = predict(capsys, run, "code/b.py", "code/a.py", "--threshold", "1")
    assert out == []
    assert err == ["0 of 14 uses of variables look wrong, in 2 files"]


def test_what_cannot_be_read_is_named_and_the_rest_is_judged(run, files, capsys):
    (files / "code" / "c.py").write_text("x = (\n")
    (files / "empty.py").write_text("")
    (files / "long.py").write_text("def f(a, b):\n" + "    a, b = b, a\n" * 1200)
    out, err = predict(capsys, run, "code", "empty.py", "absent.py", "long.py", "--threshold", "0")
    assert err[:3] == [
        "code/c.py:1:5: cannot be read: '(' was never closed",
        "empty.py: there is nothing in it",
        "absent.py: there is no such file or folder",
    ]
    most = yaml.safe_load((run / "config.yaml").read_text())["data"]["init_args"]["max_tokens"]
    assert err[3] == f"read in windows of {most} tokens, being longer: long.py:1 f (8408 tokens)"
    assert err[4].endswith(" of 2414 uses of variables look wrong, in 5 files")
    assert len(err) == 5
    files_of = [line.split(":")[0] for line in out]
    assert sorted(set(files_of), key=files_of.index) == ["code/a.py", "code/b.py", "long.py"]


def test_nothing_to_read(run, files, relbias_fails):
    (files / "a.js").write_text("let x = 1")
    assert relbias_fails("predict", run, "absent.py", "a.js", "--output", "found.csv") == (
        "there is nothing to read: absent.py: there is no such file or folder; "
        "a.js: only Python is read, and its name ends in .js"
    )
    assert not (files / "found.csv").exists()


def test_nothing_to_judge(run, files, capsys):
    (files / "short.py").write_text("x = 1\n")
    assert predict(capsys, run, "short.py", "--output", "found.csv") == (
        [],
        ["0 of 0 uses of variables look wrong, in 1 file", "the predictions are in found.csv"],
    )
    assert (files / "found.csv").read_text().strip() == "file,line,column,function,name,suggestion,probability"


def test_a_checkpoint_without_the_words_reads_the_training_s_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_code(tmp_path / "files")
    fit("code/masked_variable", "run", "files", "cache")
    (tmp_path / "a.py").write_text(FILE)
    expected, _ = predict(capsys, "run", "a.py", "--threshold", "0")
    path = tmp_path / "run" / run_folder.BEST
    checkpoint = torch.load(path, weights_only=True)
    state = checkpoint.pop("MaskedVariables")
    assert state["words"][:2] == ["(", ")"]
    torch.save(checkpoint, path)
    found, err = predict(capsys, "run", "a.py", "--threshold", "0")
    assert found == expected
    assert len(found) > 1
    assert "functions, from" in err[0]


def test_a_training_that_goes_on_has_the_same_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_code(tmp_path / "files")
    fit("code/masked_variable", "run", "files", "cache")
    words = torch.load("run/checkpoints/last.ckpt", weights_only=True)["MaskedVariables"]
    argv = ["fit", "-c", "run/config.yaml", "--ckpt_path", "last", "--trainer.max_epochs", "3"]
    assert cli.main(argv) == 0
    assert json.loads((tmp_path / "run" / "fit.json").read_text())["epochs"] == 3
    assert torch.load("run/checkpoints/last.ckpt", weights_only=True)["MaskedVariables"] == words


def test_refusals(run, files, run_dir, relbias_fails):
    line = relbias_fails("predict", run_dir, "code")
    assert line == (
        "Digits takes no input; leave out code for the test split, or give a run of code/masked_variable or "
        "code/variable_misuse"
    )
    assert "--threshold is 2, expected a probability from 0 to 1" in relbias_fails(
        "predict", run, "code", "--threshold", "2"
    )
    assert "--threshold is high, expected" in relbias_fails("predict", run, "code", "--threshold", "high")
    assert "--threshold is for inputs" in relbias_fails("predict", run, "--threshold", "0.5")
    assert "code/a.py exists; give another file with --output" in relbias_fails(
        "predict", run, "code", "--output", "code/a.py"
    )
    assert (files / "code" / "a.py").read_text() == FILE.replace("clamp", "other")
    assert "test takes one run folder, got 2" in relbias_fails("test", run, "code")
    assert "predict takes one run folder, got 0" in relbias_fails("predict")
