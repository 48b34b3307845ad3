"""The script that shows how far simple rules get with hidden variables."""

import importlib.util
import re
from pathlib import Path

import pytest
from tests.data.code_files import write_code

from relbias.data import MaskedVariables

PATH = Path(__file__).parents[2] / "benchmarks" / "variable_heuristics.py"
TRAIN = """
def total(rows, size):
    for row in rows:
        size += len(row)
    return size

def scale(rows, size):
    size = len(rows)
    return [row * size for row in rows]
"""
TEST = """
def scaled(self, rows, size):
    rows = list(rows)
    for row in rows:
        size = len(row)
    return self
"""


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("benchmarks_variable_heuristics", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    root = tmp_path_factory.mktemp("code")
    return write_code(root / "files", {"train": [TRAIN], "val": [TRAIN.replace("rows", "lines")], "test": [TEST]})


@pytest.fixture(scope="module")
def data(code):
    data = MaskedVariables(str(code), cache=str(code.parent / "cache"))
    data.setup()
    return data


def reads(data):
    """The questions of the test: the function, the token, and the name that stands there."""
    every = [data.sample("test", sample) for sample in range(len(data.samples["test"]))]
    return [(encoded, token, encoded.function.source.tokens[token]) for encoded, token in every]


def test_the_answers_of_the_rules(module, data):
    questions = reads(data)
    assert [name for _, _, name in questions] == ["rows", "rows", "row", "self"]
    answers = [[rule(*question[:2]) for question in questions] for rule in (module.nearest, module.most_frequent)]
    assert answers[0] == ["rows", "row", "size", "row"]
    assert answers[1] == ["rows", "rows", "rows", "rows"]
    trigram = module.Trigram(data.functions_of("train"))
    # "(" and ")" enclose row and rows once each, and rows is nearer to both places; "return" comes before size alone.
    assert [trigram(*question[:2]) for question in questions] == ["rows", "rows", "rows", "size"]


def test_contexts(module):
    assert list(module.Trigram.contexts(("a", "b", "c"), 0)) == [
        ("both", "", "", "b"),
        ("around", "", "b"),
        ("before", ""),
        ("anywhere",),
    ]
    assert next(module.Trigram.contexts(("a", "b", "c"), 2)) == ("both", "a", "b", "")


def test_the_table(module, code, capsys):
    assert module.main(["--path", str(code), "--cache", str(code.parent / "cache")]) == 0
    output = capsys.readouterr().out
    rows = {
        name: tuple(map(float, shares))
        for name, *shares in re.findall(r"\| ([a-z ]+) \| ([\d.]+) \| ([\d.]+) \|", output)
    }
    assert rows == {
        "random": (0.25, 0.25),
        "nearest": (0.25, 0.333),
        "most frequent": (0.5, 0.667),
        "trigram": (0.5, 0.667),
    }
    assert "4 questions, 5 functions, sha256" in output
