import shutil

import pytest

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
    assert text.startswith("# Title\n<!-- relbias table: begin own -->\n| encoding | centred, % | moved, % |")
    assert text.endswith("<!-- relbias table: end own -->\nend\n")
    assert "old" not in text
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert rows == ["encoding", "shaw (max_distance=3)", "none"]
    assert "relbias table own.yaml --seeds 2 -c encoding/none" in text

    monkeypatch.setattr(train, "fit", lambda argv: pytest.fail("a finished run was repeated"))
    (tmp_path / "runs" / "own" / "none-seed1" / "test.json").unlink()  # only the test is missing: it is done again
    assert cli.main(argv) == 0
    assert (tmp_path / "README.md").read_text() == text


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
    assert lines[0] == "| encoding | centred, % | parameters | training, s | epochs | seeds |"
    assert lines[2] == "| shaw | 99.0 ± 1.0 | 12,345 | 70 | 60 | 3 |"


def test_one_seed_has_no_deviation():
    runs = [[record(0.5, **{"test/accuracy_moved": 0.25})]]
    assert table.render(runs, "cmd").splitlines()[2] == "| shaw | 50.0 | 25.0 | 12,345 | 60 | 60 | 1 |"


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
