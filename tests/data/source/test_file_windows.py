import pytest
import torch
from tests.data.code_files import write_code

from relbias.data import MaskedVariables, MisusedVariables
from relbias.data.source.batches import Encoded
from relbias.data.source.file_windows import file_windows
from relbias.data.source.node_types import NodeTypes
from relbias.data.source.own_variables import own_variables
from relbias.data.source.python import parse_python
from relbias.data.source.vocabulary import SourceVocabulary

FILE = """
import os

def short(a):
    return a

class C:
    def method(self, value):
        def inner(x, y):
            return x + y + value
        return inner(value, self)
"""


def encode(function):
    return Encoded.of(function, SourceVocabulary([function.source], max_words=2), NodeTypes([function.source]))


def long(statements):
    lines = [f"    a{number} = b + c" for number in range(statements)]
    return "\n".join(["def long(b, c):", *lines, "    return a0"])


def test_every_use_in_a_file_is_asked_about_once_with_its_place(tmp_path):
    (tmp_path / "a.py").write_text(FILE)
    found = file_windows([tmp_path / "a.py"], encode, 128)
    assert found.notices == []
    assert [window.encoded.function.name for window in found.windows] == ["method", "inner"]
    lines = FILE.split("\n")
    seen = []
    for window in found.windows:
        for token in window.asked:
            line, column = window.place(token)
            name = window.encoded.function.source.tokens[token]
            assert lines[line - 1][column:].startswith(name)
            seen.append((name, line))
    assert seen == [("value", 10), ("inner", 11), ("value", 11), ("self", 11), ("x", 10), ("y", 10)]


@pytest.mark.parametrize(("statements", "max_tokens"), [(30, 40), (7, 16), (6, 31), (5, 5), (40, 64), (2000, 128)])
def test_a_long_function_is_read_in_windows(tmp_path, statements, max_tokens):
    text = long(statements)
    (tmp_path / "a.py").write_text(text)
    parsed = parse_python(text)
    own = own_variables(parsed.part(0, len(parsed.tokens)))
    found = file_windows([tmp_path], encode, max_tokens)
    (notice,) = found.notices
    assert notice == (
        f"read in windows of {max_tokens} tokens, being longer: {tmp_path}/a.py:1 long ({len(parsed.tokens)} tokens)"
    )
    asked = []
    for window in found.windows:
        function = window.encoded.function
        source, first = function.source, function.first
        assert len(source.tokens) == max_tokens
        assert source.tokens == parsed.tokens[first : first + max_tokens]
        assert function.own.names == own.names
        assert function.own.numbers.tolist() == own.numbers[first : first + max_tokens].tolist()
        asked += [first + token for token in window.asked]
        for token in window.asked:  # as far from the ends as in any window
            at_left = token < max_tokens // 4 and first > 0
            at_right = max_tokens - token <= max_tokens // 4 - 1 and first + max_tokens < len(parsed.tokens)
            assert not at_left
            assert not at_right
    assert len(asked) == len(set(asked))
    if max_tokens > 15:
        assert sorted(asked) == list(own.reads)


def test_windows_without_a_choice_are_left_out(tmp_path):
    (tmp_path / "a.py").write_text("def f(a, b):\n" + "    print(a)\n" * 30 + "    return b")
    found = file_windows([tmp_path], encode, 16)
    names = {window.encoded.function.source.tokens[token] for window in found.windows for token in window.asked}
    assert names == {"a", "b"}
    for window in found.windows:
        assert len({number for number in window.encoded.function.own.numbers.tolist() if number >= 0}) > 1


def test_problems_are_noticed_and_long_functions_in_one_line(tmp_path):
    (tmp_path / "a.py").write_text("x = (\n")
    (tmp_path / "b.py").write_text("\n\n".join(long(8 + place) for place in range(5)))
    found = file_windows([tmp_path / "a.py", tmp_path / "b.py"], encode, 40)
    assert found.num_files == 2
    problem, windows = found.notices
    assert problem.startswith(f"{tmp_path}/a.py:1:5: cannot be read: ")
    assert windows.startswith("read in windows of 40 tokens, being longer: ")
    assert windows.endswith(" tokens) and 2 more")
    assert windows.count("b.py:") == 3


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    return write_code(tmp_path_factory.mktemp("code"))


@pytest.fixture(params=[MaskedVariables, MisusedVariables])
def fitted(request, code, tmp_path):
    data = request.param(str(code), cache=str(tmp_path / "cache"), batch_size=4)
    data.setup()
    return data


def test_a_checkpoint_knows_the_words(fitted, tmp_path):
    (tmp_path / "a.py").write_text(FILE)
    data = type(fitted)("absent", batch_size=4)
    with pytest.raises(ValueError, match="the words are not known; call setup"):
        data.windows([tmp_path / "a.py"])
    assert data.state_dict() == {}
    data.load_state_dict({})
    torch.save(fitted.state_dict(), tmp_path / "state.pt")
    data.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    batches, expected = (list(each.file_batches(each.windows([tmp_path / "a.py"]).windows)) for each in (data, fitted))
    assert len(batches) == len(expected) > 0
    for (one, _), (other, _) in zip(batches, expected, strict=True):
        assert all(one[name].equal(other[name]) for name in other)
    fitted.load_state_dict(data.state_dict())
    with pytest.raises(ValueError, match="the checkpoint has other words than"):
        fitted.load_state_dict({**data.state_dict(), "words": ["x"]})


def test_the_batches_of_a_file(fitted, code):
    path = code / "test_0.py"
    found = fitted.windows([path]).windows
    tested = {
        (tuple(encoded.function.source.tokens), token): sample
        for sample in range(len(fitted.samples["test"]))
        for encoded, token in [fitted.sample("test", sample)]
    }
    seen = 0
    for batch, rows in fitted.file_batches(found):
        assert len(batch["words"]) == len(rows) <= 4
        for row, what in enumerate(rows):
            window, token = what if isinstance(what, tuple) else (what, None)
            function = window.encoded.function
            count = len(function.source.tokens)
            if token is not None:
                expected = fitted.rows("test", [tested[function.source.tokens, token]])
                assert batch["hidden"][row].tolist() == [row, token]
                assert batch["target"][row] == expected["target"][0]
                for name in ("words", "variables", "node_of_token"):
                    assert batch[name][row, :count].equal(expected[name][0])
                assert batch["edges"][row, :count, :count].equal(expected["edges"][0])
                seen += 1
            else:
                assert batch["wrong"][row] == batch["target"][row] == -1
                assert batch["reads"][row].nonzero()[:, 0].tolist() == list(function.own.reads) == list(window.asked)
                assert batch["variables"][row, :count].tolist() == function.own.numbers.tolist()
                seen += len(window.asked)
    assert seen == len(tested)
