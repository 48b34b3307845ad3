"""The script that measures parsing and relating the functions of a folder."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest
import torch

from relbias.data.source.python import parse_python

PATH = Path(__file__).parents[2] / "benchmarks" / "parse_sources.py"


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location("benchmarks_parse_sources", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.py").write_text("def f(x):\n    def g(y): return y\n    return g(x) + 1\n")
    (tmp_path / "b.py").write_text("x = (\ndef h(): pass\n")
    (tmp_path / "c.js").write_text("const f = a => a")
    return tmp_path


def test_the_table(module, folder, capsys, monkeypatch):
    # Parsing takes 1 s, with a cache 2 s, from it 4 s, and so on.
    times = iter(2.0**place for place in range(7))
    monkeypatch.setattr(module, "seconds", lambda run, repeats, device: (run(), next(times))[1])
    (folder / "tests").mkdir()
    (folder / "tests" / "d.py").write_text("x = 1")
    assert module.main(["--path", str(folder), "--without", "tests", "--languages", "python", "javascript"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert rows[0] == ["3 files, 33 tokens, 4 functions of at most 512 tokens", "s", "ms of a file"]
    assert [row[1] for row in rows[1:]] == ["1.0", "2.0", "4.0", "8.0", "16.0", "32.0", "64.0", "121.0"]
    assert [row[2] for row in rows[-2:]] == ["21333.33", "40333.33"]
    assert lines[-1].startswith("1 files with problems, 0 of them left out. ")


def test_trees_are_padded_with_those_of_about_their_size(module):
    sources = [parse_python("def f(): " + "+".join("x" * (1 + number % 40))) for number in range(70)]
    made = module.batches(sources)
    assert [len(parents) for parents, _ in made] == [32, 32, 6]
    for parents, nodes in made:
        assert (parents[:, 0] == -1).all()
        assert (nodes.max() < parents.shape[1]).all()
        assert parents.shape[1] - int((parents >= 0).sum(dim=1).min()) < 50
    module.relate(made[:1])
    assert made[0][0].dtype == torch.int32


def test_times_are_measured(module, folder, capsys):
    assert module.main(["--path", str(folder)]) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 9
    assert all(float(row[1]) >= 0 and float(row[2]) >= 0 for row in rows[1:])
    assert float(rows[1][2]) > 0


def test_another_result_from_the_cache_is_not_timed(module, folder, monkeypatch):
    def wrong(path, languages, cache, without):
        found = module_parse(path, languages, cache, without=without)
        if cache is not None:
            found.sources["a.py"] = dataclasses.replace(found.sources["a.py"], tokens=())
        return found

    module_parse = module.parse_folder
    monkeypatch.setattr(module, "parse_folder", wrong)
    with pytest.raises(RuntimeError, match=r"the cache gave another tree of a.py"):
        module.main(["--path", str(folder)])
