import sysconfig
from pathlib import Path

import pytest

from relbias.data.source.grammars import parse_with_grammar
from relbias.data.source.parsed import KINDS
from relbias.data.source.python import parse_python

STDLIB = Path(sysconfig.get_path("stdlib"))
MODULES = ["argparse.py", "asyncio/tasks.py", "heapq.py", "json/decoder.py", "shlex.py", "pprint.py"]


def places(parsed):
    return list(zip(parsed.tokens, parsed.kinds.tolist(), parsed.spans.tolist(), strict=True))


def functions(parsed):
    return [(f.name, parsed.spans[f.first].tolist(), parsed.spans[f.last - 1].tolist()) for f in parsed.functions]


def extents(parsed, node_type):
    """From the first to the last token in or below each of these nodes."""
    first, last = {}, {}
    parents = parsed.parents.tolist()
    for token, node in enumerate(parsed.node_of_token.tolist()):
        while node >= 0:
            if parsed.node_types[node] == node_type:
                first.setdefault(node, token)
                last[node] = token
            node = parents[node]
    return sorted((first[node], last[node]) for node in first)


@pytest.mark.parametrize("module", MODULES)
def test_python_is_read_as_by_ast(module):
    data = (STDLIB / module).read_bytes()
    ours, theirs = parse_python(data), parse_with_grammar(data, "python")
    assert theirs.problems == ()
    assert places(ours) == places(theirs)
    assert functions(ours) == functions(theirs)
    for node, name in (
        ("Call", "call"),
        ("Attribute", "attribute"),
        ("Return", "return_statement"),
        ("ListComp", "list_comprehension"),
    ):
        assert extents(ours, node) == extents(theirs, name), node
        assert extents(ours, node) or node == "ListComp"


@pytest.mark.parametrize(
    ("language", "text", "tokens", "names"),
    [
        (
            "javascript",
            "// sum\nconst f = (a, b) => `x${a}` + /b+/g;\nclass A { m() { return 1 } }",
            "const f = ( a , b ) => `x${a}` + /b+/g ; class A { m ( ) { return 1 } }",
            ["", "m"],
        ),
        (
            "java",
            "class A { /* c */ int f(String s) { return s.length() + 'c' + \"a\\n\"; } A() {} }",
            "class A { int f ( String s ) { return s . length ( ) + 'c' + \"a\\n\" ; } A ( ) { } }",
            ["f", "A"],
        ),
        (
            "go",
            'package m\nfunc (r *T) F(a int) string { x := func() {}; return "a\\n" + `b` }',
            'package m func ( r * T ) F ( a int ) string { x := func ( ) { } ; return "a\\n" + `b` }',
            ["F", ""],
        ),
    ],
)
def test_other_languages(language, text, tokens, names):
    parsed = parse_with_grammar(text, language)
    assert " ".join(parsed.tokens) == tokens
    assert [function.name for function in parsed.functions] == names
    assert parsed.problems == ()
    assert parsed.language == language
    strings = [token for token, kind in zip(parsed.tokens, parsed.kinds, strict=True) if KINDS[kind] == "string"]
    assert strings == [token for token in parsed.tokens if token[0] in "'\"`/"]
    lines = text.split("\n")
    assert [lines[row - 1][start:end] for row, start, _, end in parsed.spans.tolist()] == list(parsed.tokens)
    first = parsed.functions[0]
    part = parsed.part(first.first, first.last)
    assert part.node_types[0] == parsed.node_types[first.node]
    assert part.functions[0] == (first.name, 0, 0, first.last - first.first)


@pytest.mark.parametrize("language", ["javascript", "java", "go", "python"])
def test_errors_are_repaired_and_reported(language):
    parsed = parse_with_grammar("x = = (1;\ny", language)
    assert parsed.problems
    assert parsed.tokens[0] == "x"
    assert parsed.tokens[-1] == "y"


def test_a_missing_token_is_no_token():
    parsed = parse_with_grammar("f(1;", "javascript")
    assert parsed.tokens == ("f", "(", "1", ";")
    assert str(parsed.problems[0]) == "line 1, column 4: syntax error, expected ')'"


@pytest.mark.parametrize("text", ["", "\0\0", "((((" * 5000, "x" * 100_000, "\ud800", b"\xff\x00\xfe", b"\xff\xfe\x00"])
def test_strange_texts_do_not_raise(text):
    for language in ("javascript", "go"):
        parsed = parse_with_grammar(text, language)
        assert len(parsed.kinds) == len(parsed.tokens) == len(parsed.node_of_token)


def test_columns_are_characters_and_utf_16_is_read():
    text = "é = 'ü'; xy = 1"
    parsed = parse_with_grammar(text.encode("utf-16"), "javascript")
    assert parsed.tokens == ("é", "=", "'ü'", ";", "xy", "=", "1")
    assert parsed.spans[:, 1].tolist() == [0, 2, 4, 7, 9, 12, 14]


def test_unknown_language_names_the_nearest():
    with pytest.raises(ValueError, match=r"no grammar of 'javascrip'; did you mean 'javascript'\?"):
        parse_with_grammar("", "javascrip")
