import ast
import sysconfig
import tokenize
from pathlib import Path

import pytest
import torch

from relbias.data.source.parsed import KINDS
from relbias.data.source.python import parse_python

STDLIB = Path(sysconfig.get_path("stdlib"))
MODULES = ["ast.py", "argparse.py", "asyncio/tasks.py", "fractions.py", "heapq.py", "dataclasses.py", "json/decoder.py"]


def text_at(lines, span):
    (first, start, last, end) = span
    if first == last:
        return lines[first - 1][start:end]
    return "\n".join([lines[first - 1][start:], *lines[first : last - 1], lines[last - 1][:end]])


def node_of(parsed, token):
    return parsed.node_types[parsed.node_of_token[parsed.tokens.index(token)]]


def above(parsed, node):
    found = []
    while node >= 0:
        found.append(parsed.node_types[node])
        node = int(parsed.parents[node])
    return found


def kinds(parsed):
    return [KINDS[kind] for kind in parsed.kinds]


def test_tokens_and_nodes_of_a_function():
    parsed = parse_python("@cache\ndef f(a, b=2):  # sum\n    return (a + b)\n")
    assert " ".join(parsed.tokens) == "@ cache def f ( a , b = 2 ) : return ( a + b )"
    assert kinds(parsed)[:6] == ["operator", "name", "keyword", "name", "operator", "name"]
    assert node_of(parsed, "def") == node_of(parsed, "@") == "FunctionDef"
    assert node_of(parsed, ",") == "arguments"
    assert node_of(parsed, "+") == "BinOp"
    assert parsed.node_types[parsed.node_of_token[13]] == "Return"  # a parenthesis is that of what it stands in
    assert parsed.parents.tolist() == [-1, 0, 1, 1, 3, 3, 3, 1, 7, 8, 8]
    assert parsed.node_types[:4] == ("Module", "FunctionDef", "Name", "arguments")
    assert parsed.functions == (("f", 1, 2, 18),)
    assert parsed.problems == ()


def test_strings_are_one_token_and_hold_no_nodes():
    parsed = parse_python("x = f'{a}b' \"c\"\ny = f'''{a\n}'''")
    assert parsed.tokens == ("x", "=", "f'{a}b'", '"c"', "y", "=", "f'''{a\n}'''")
    assert kinds(parsed)[2:4] == ["string", "string"]
    assert parsed.spans[-1].tolist() == [2, 4, 3, 4]
    assert above(parsed, int(parsed.node_of_token[3])) == ["JoinedStr", "Assign", "Module"]


def test_columns_are_characters():
    parsed = parse_python("é = 'ü'; xy = é.z")
    assert parsed.spans[:, 1].tolist() == [0, 2, 4, 7, 9, 12, 14, 15, 16]
    assert node_of(parsed, "xy") == "Name"
    assert node_of(parsed, "z") == "Attribute"


def test_soft_keywords():
    parsed = parse_python("match match:\n    case 1: case = type")
    assert kinds(parsed)[:2] == ["keyword", "name"]
    assert kinds(parsed)[3:9] == ["keyword", "number", "operator", "name", "operator", "name"]


@pytest.mark.parametrize("module", MODULES)
def test_places_are_those_of_the_text(module):
    """Each token stands where its span says, and each node type and place is found again in Python's own tree."""
    with tokenize.open(STDLIB / module) as file:
        text = file.read()
    parsed = parse_python((STDLIB / module).read_bytes())
    lines = text.split("\n")
    for token, span in zip(parsed.tokens, parsed.spans.tolist(), strict=True):
        assert text_at(lines, span) == token
    names = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
            names[node.lineno, column] = node.id
    found = {}
    for token, node, span in zip(parsed.tokens, parsed.node_of_token.tolist(), parsed.spans.tolist(), strict=True):
        if parsed.node_types[node] == "Name" and token.isidentifier():
            found[span[0], span[1]] = token
    in_strings = names.keys() - found.keys()
    assert not found.keys() - names.keys()
    assert all(names[place] == name for place, name in found.items())
    # What is missing stands in formatted strings.
    strings = parsed.spans[parsed.kinds == KINDS.index("string")].tolist()
    for line, _ in in_strings:
        assert any(first <= line <= last for first, _, last, _ in strings)
    nodes = torch.arange(len(parsed.parents))
    assert bool((parsed.parents < nodes).all())
    assert [parsed.tokens[function.first] for function in parsed.functions].count("def") > 5
    for function in parsed.functions:
        assert function.name in parsed.tokens[function.first + 1 : function.first + 3]


def test_declared_encodings():
    source = "# -*- coding: latin-1 -*-\ngrün = 'ß'\n"
    assert parse_python(source.encode("latin-1")).tokens == ("grün", "=", "'ß'")
    assert parse_python(source.encode("utf-8-sig").replace(b"latin-1", b"utf-8  ")).tokens == ("grün", "=", "'ß'")
    assert parse_python("# coding: cp1251\nимя = 1".encode("cp1251")).tokens == ("имя", "=", "1")
    assert parse_python(source).tokens == ("grün", "=", "'ß'")  # a text is decoded already


@pytest.mark.parametrize(
    "data",
    [
        b"# coding: no-such\nx = 1",
        b"# coding: hex\nx",
        b"# coding: undefined\nx",
        "x = 'ß'".encode("latin-1"),
        b"\xff\xfex\x00",
    ],
)
def test_wrong_encodings_are_reported(data):
    parsed = parse_python(data)
    assert parsed.tokens == ()
    assert parsed.problems[0].message.startswith("no text in the encoding that it declares: ")


def test_line_ends():
    parsed = parse_python(b"a = 1\r\nb = 2\rc = '\x0c'\x0c\nd = 3")
    assert parsed.spans[:, 0].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


def test_statements_with_errors_are_left_out():
    text = "x = 1\n\n@d\ndef f(:\n    pass\n\n    def g():\n        1 1\n\n"
    text += "y = 2\nprint 3\nif y:\n    z\nelse:\n    = 4\nw = (\n"
    parsed = parse_python(text)
    assert parsed.tokens == ("x", "=", "1", "y", "=", "2")
    assert parsed.spans[3].tolist() == [10, 0, 10, 1]
    assert [problem.line for problem in parsed.problems] == [4, 11, 15, 16]
    assert str(parsed.problems[0]) == "line 4, column 7: invalid syntax"


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "\ufeff"])
def test_nothing(text):
    parsed = parse_python(text)
    assert parsed.tokens == ()
    assert parsed.spans.shape == (0, 4)
    assert parsed.node_types == ("Module",)
    assert parsed.problems == ()


def test_nul_characters_are_reported_and_read_over():
    parsed = parse_python(b"x = 1\ny\0= 2\n")
    assert parsed.tokens == ("x", "=", "1", "y", "=", "2")
    assert str(parsed.problems[0]) == "line 2, column 2: a NUL character"


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "-" * 100_000 + "1",
        "x = " + "[" * 150 + "]" * 150,
        "x = a" + ".b" * 20_000,
        "x = " + "+".join("a" * 20_000),
        "".join("  " * depth + "if x:\n" for depth in range(200)) + "  " * 200 + "y",
        "if x: y\n" + "elif x: y\n" * 3000,
        "\ud800 = 1",
        "'''" + "x = 1\n" * 100,
        "\n".join(f"print {number}" for number in range(200)),
        "\\",
        "x = 0777\n$ ? !\n",
    ],
    ids=lambda text: text[:10],
)
def test_strange_texts_do_not_raise(text):
    parsed = parse_python(text)
    assert parsed.problems or len(parsed.tokens) > 10


def test_statements_that_only_tokenize_cannot_read_are_left_out():
    text = "x = 1\ndef f(a):\n    a\n  \\\n\n    if a:\n        try: a\n        finally: a\ny = 2"
    ast.parse(text)
    with pytest.raises(IndentationError):
        list(tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__))
    parsed = parse_python(text)
    assert parsed.tokens == ("x", "=", "1", "y", "=", "2")
    assert [problem.line for problem in parsed.problems] == [4]
    assert parsed.node_types == ("Module", "Assign", "Name", "Constant", "Assign", "Name", "Constant")


@pytest.mark.parametrize("declared", ["a, ℘, b", "a, b\u00b7c, d"])
def test_letters_that_are_no_tokens(declared):
    """Some versions of `tokenize` do not know all letters of names; the names are then left out, or a piece of them."""
    names = declared.split(", ")
    parsed = parse_python(f"def f({declared}):\n def g(): nonlocal {declared}")
    first = parsed.tokens.index("nonlocal") + 1
    assert parsed.problems == ()
    assert parsed.variable_of_token[first] == parsed.variable_of_token[3]
    if parsed.tokens[first : first + 5 : 2] != tuple(names):
        assert parsed.variable_of_token[first + 1 :].tolist() == [-1] * len(parsed.tokens[first + 1 :])


def test_nesting_200_deep():
    """Python's own limits are 200 parentheses and 100 blocks."""
    parsed = parse_python("x = " + "f(" * 199 + "1" + ")" * 199)
    if not parsed.problems:  # the limit of the parser's stack depends on the version
        assert len(above(parsed, int(parsed.node_of_token[parsed.tokens.index("1")]))) == 202
    deep = "x = " + "a[" * 60 + "1" + "]" * 60
    assert len(above(parse_python(deep), int(parse_python(deep).node_of_token[2 + 2 * 60]))) == 63


def test_part_of_a_source():
    parsed = parse_python("import os\ndef f(x):\n    def g(y): return y\n    return g(x)\n")
    outer, inner = parsed.functions
    part = parsed.part(outer.first, outer.last)
    assert part.tokens[:2] == ("def", "f")
    assert part.functions == (("f", 0, 0, 19), ("g", part.node_types.index("FunctionDef", 1), 6, 14))
    assert part.node_types[0] == "FunctionDef"
    assert int(part.parents[0]) == -1
    for token, (here, there) in enumerate(
        zip(part.node_of_token.tolist(), parsed.node_of_token[outer.first : outer.last].tolist(), strict=True)
    ):
        assert above(part, here) == above(parsed, there)[:-1], token
    same = part.part(6, 14)
    other = parsed.part(inner.first, inner.last)
    assert same.tokens == other.tokens
    assert same.node_types == other.node_types
    assert same.parents.tolist() == other.parents.tolist()


def test_windows_of_a_function():
    """Tokens of several statements keep their tree down from the lowest node above them all."""
    parsed = parse_python("def f():\n    a = 1\n    b = 2\n    c = 3\n")
    start = parsed.tokens.index("b")
    assert parsed.part(start, start + 3).node_types == ("Assign", "Name", "Constant")
    assert parsed.part(start - 1, start + 1).node_types == ("FunctionDef", "Assign", "Constant", "Assign", "Name")
    assert parsed.part(start, start).tokens == ()
    with pytest.raises(ValueError, match="tokens 3 to 99 are not within the 14 tokens of the source"):
        parsed.part(3, 99)
