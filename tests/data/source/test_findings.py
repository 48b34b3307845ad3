import pytest
import torch
from tests.data.code_files import write_code

from relbias.data import MaskedVariables, MisusedVariables

FILE = """
def clamp(value, low, high):
    if value < low:
        return low
    return [é for é in high if é] + value

def last(first, second):
    third = first
    return third
"""
OTHER = "def only(one):\n    return one\n\ndef pair(a, b):\n    return a\n"


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    return write_code(tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="module")
def masked(code, tmp_path_factory):
    data = MaskedVariables(str(code), cache=str(tmp_path_factory.mktemp("cache")), batch_size=4)
    data.setup()
    return data


@pytest.fixture(scope="module")
def misused(code, tmp_path_factory):
    data = MisusedVariables(str(code), cache=str(tmp_path_factory.mktemp("cache")), batch_size=2)
    data.setup()
    return data


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "z.py").write_text(FILE)
    (tmp_path / "a.py").write_text(OTHER)
    return ["z.py", "a.py"]


def answers_of(inputs, answer):
    """What `predict_step` would return: `answer` says it for a row of a batch."""
    results = []
    for batch in inputs:
        rows = [answer(batch, row) for row in range(len(batch["lengths"]))]
        results.append({name: torch.tensor([row[name] for row in rows]) for name in rows[0]})
    return results


def next_variable(batch, row):
    """The variable after the right one, and a probability that tells the places apart."""
    target, variables = int(batch["target"][row]), int(batch["variables"][row].max()) + 1
    probability = 0.5 + float(batch["hidden"][row, 1]) / 1000
    return {"label": target, "prediction": (target + 1) % variables, "probability": probability}


def test_each_hidden_use_has_its_place_name_and_suggestion(masked, files):
    inputs = masked.read_inputs(files)
    found = inputs.findings(answers_of(inputs, next_variable), threshold=0)
    # é is the fourth variable of clamp, which is not visible outside of the comprehension.
    assert [(one.file, one.line, one.column, one.function, one.name, one.suggestion) for one in found] == [
        ("z.py", 3, 8, "clamp", "value", "low"),
        ("z.py", 3, 16, "clamp", "low", "high"),
        ("z.py", 4, 16, "clamp", "low", "high"),
        ("z.py", 5, 13, "clamp", "é", "value"),
        ("z.py", 5, 32, "clamp", "é", "value"),
        ("z.py", 5, 37, "clamp", "value", "low"),
        ("z.py", 8, 13, "last", "first", "second"),
        ("z.py", 9, 12, "last", "third", "first"),
        ("a.py", 5, 12, "pair", "a", "b"),
    ]
    assert [round(1000 * (one.probability - 0.5)) for one in found[:2]] == [11, 13]  # the tokens
    assert str(found[0]) == "z.py:3:8: value in clamp should perhaps be low (0.51)"
    assert inputs.summary(found) == "9 of 10 uses of variables look wrong, in 2 files"


def test_the_threshold_is_a_probability(masked, files):
    inputs = masked.read_inputs(files)
    answers = answers_of(inputs, next_variable)
    every = inputs.findings(answers, 0.0)
    middle = sorted(one.probability for one in every)[4]
    kept = inputs.findings(answers, middle)
    assert kept == [one for one in every if one.probability >= middle]
    assert 0 < len(kept) < len(every)
    assert inputs.findings(answers) == []  # of the data, 0.98


def test_nothing_is_said_of_a_use_that_is_as_the_network_would_have_it(masked, files):
    inputs = masked.read_inputs(files)
    right = answers_of(inputs, lambda batch, row: {"prediction": int(batch["target"][row]), "probability": 1.0})
    assert inputs.findings(right) == []


def test_one_use_of_a_function_is_misused(misused, files):
    def answer(batch, row):
        place = int(batch["reads"][row].nonzero()[-1, 0])
        present = int(batch["variables"][row, place])
        return {"place": place, "suggestion": 0 if present else 1, "place_probability": 0.92 + row / 20}

    inputs = misused.read_inputs(files)
    found = inputs.findings(answers_of(inputs, answer))
    assert [(one.file, one.line, one.column, one.name, one.suggestion) for one in found] == [
        ("z.py", 5, 37, "value", "low"),
        ("z.py", 9, 12, "third", "first"),
        ("a.py", 5, 12, "a", "b"),
    ]
    assert {round(one.probability, 2) for one in found} == {0.92, 0.97}
    assert len(inputs.findings(answers_of(inputs, answer), 0.95)) < 3


def long_text(statements):
    lines = [f"    print(other, here_{number}, here_{number})" for number in range(statements)]
    names = [f"    here_{number} = {number}" for number in range(statements)]
    return "\n".join(["def long(other, rare):", *names, "    print(rare)", *lines])


def test_a_long_function_is_judged_once_and_not_where_the_right_variable_is_out_of_sight(masked, tmp_path):
    (tmp_path / "long.py").write_text(long_text(60))
    inputs = masked.read_inputs([tmp_path / "long.py"])
    assert len(inputs.notices) == 1
    asked = []

    def answer(batch, row):
        numbers = batch["variables"][row].tolist()
        target = int(batch["target"][row])
        asked.append(target in numbers)
        # What the network can say is among the other variables.
        return {"prediction": next(number for number in numbers if number not in (-1, target)), "probability": 1.0}

    found = inputs.findings(answers_of(inputs, answer))
    places = [(one.line, one.column) for one in found]
    assert len(places) == len(set(places)) > 100
    assert not all(asked)
    rare = [one for one in found if one.name == "rare"]
    assert rare == []  # bound in a window and read in another
    # A parameter that is bound in the first window is visible in the last.
    assert found[-1].line == 122
    assert {one.suggestion for one in found[-20:]} >= {"other"}


def test_the_use_of_a_long_function_that_another_window_judges(misused, tmp_path):
    (tmp_path / "long.py").write_text(long_text(60))
    inputs = misused.read_inputs([tmp_path / "long.py"])

    def answer(batch, row):  # each window suspects its last use
        place = int(batch["reads"][row].nonzero()[-1, 0])
        return {"place": place, "suggestion": 0, "place_probability": 1.0}

    (found,) = inputs.findings(answers_of(inputs, answer))
    assert (found.line, found.suggestion) == (122, "other")


def test_files_without_a_choice(masked, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n\ndef only(one):\n    return one\n")
    inputs = masked.read_inputs([tmp_path / "a.py", tmp_path / "absent.py"])
    assert list(inputs) == []
    assert inputs.findings([]) == []
    assert inputs.summary([]) == "0 of 0 uses of variables look wrong, in 1 file"
    assert inputs.notices == [f"{tmp_path}/absent.py: there is no such file or folder"]
