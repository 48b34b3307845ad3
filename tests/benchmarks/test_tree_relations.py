"""The script that measures the relations of trees."""

import importlib.util
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "benchmarks" / "tree_relations.py"


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("benchmarks_tree_relations", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_trees_have_as_many_nodes(module):
    for name, parents in module.trees(300).items():
        assert parents.shape == (300,), name
        assert (parents[1:] < torch.arange(1, 300)).all()
        assert (parents[1:] >= 0).all()
        assert parents[0] == -1


def test_the_tables(module, capsys):
    assert module.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    rows = [row for row in rows if not row[0].startswith("---")]
    assert rows[0] == ["ms, 60 nodes", "chain", "star", "random", "syntax"]
    assert [row[0] for row in rows[1:9]] == [*module.OURS]
    assert [row[0] for row in rows[9:18]] == ["a batch of 32 trees of 128 nodes", *module.OURS]
    assert [row[0] for row in rows[18:]] == ["others, the syntax tree of 60 nodes", *module.THEIRS]
    for row in rows[1:9] + rows[10:18] + rows[19:]:
        assert all(float(cell) >= 0 for cell in row[1:])


@pytest.mark.parametrize(
    ("name", "message"),
    [("tree_hops", "hops differ"), ("tree_steps", "common ancestors differ"), ("tree_pageranks", "PageRank")],
)
def test_wrong_relations_are_not_timed(module, monkeypatch, name, message):
    def wrong(parents):
        values = torch.full((60, 60), 7)
        return (values, values) if name == "tree_steps" else values

    monkeypatch.setattr(module.relations, name, wrong)
    with pytest.raises(RuntimeError, match=message):
        module.check(module.trees(60)["random"])
