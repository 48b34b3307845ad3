import sysconfig
import time
from pathlib import Path

import pytest

from relbias.data.source.grammars import MAX_PROBLEMS, parse_with_grammar
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


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("javascript", "const {ab, c: d} = f; class A { #p; m() { this.#p } }", "ab c d f A #p m #p"),
        ("javascript", "loop: for (const x of y) { break loop } ({ab, get c() {}})", "loop x y loop ab c"),
        (
            "java",
            "@Override <T> T f(List<T> xs) { out: break out; this.<T>g(A.B::h); }",
            "Override T T f List T xs out out T g A B h",
        ),
        ("go", "package p; func (r *T) F[K any]() { L: goto L; _ = r.x; S{f: 1} }", "p r T F K any L L _ r x S f"),
        ("python", "def f(a, *b): lambda c: d.e", "f a b c d e"),
    ],
)
def test_names(language, text, expected):
    parsed = parse_with_grammar(text, language)
    names = [token for token, kind in zip(parsed.tokens, parsed.kinds, strict=True) if KINDS[kind] == "name"]
    assert " ".join(names) == expected


@pytest.mark.parametrize("language", ["javascript", "java", "go", "python"])
def test_nul_characters_are_reported_and_read_over(language):
    parsed = parse_with_grammar(b"x = 1\ny\0= 2\n", language)
    assert parsed.tokens == ("x", "=", "1", "y", "=", "2")
    assert str(parsed.problems[0]) == "line 2, column 2: a NUL character"


@pytest.mark.parametrize(
    ("language", "text", "names"),
    [
        ("java", "record R(int a) { R { } R(long b) { this((int) b); } int f() { return a; } }", ["R", "R", "f"]),
        (
            "javascript",
            "function f() {} function* g() {} x = function h() {}; y = function* () {}",
            ["f", "g", "h", ""],
        ),
        ("javascript", "({a() {}, get b() { return x => x }, async *c() {}})", ["a", "b", "", "c"]),
        ("go", "package m; func f(); func (t T) g() { func() {}() }", ["f", "g", ""]),
        ("python", "class A:\n async def f(): pass\n @d\n def g(): lambda: 0", ["f", "g"]),
    ],
)
def test_functions(language, text, names):
    parsed = parse_with_grammar(text, language)
    assert [function.name for function in parsed.functions] == names
    assert parsed.problems == ()


def test_layout_is_no_token():
    parsed = parse_with_grammar("x = <p>\n  <b>a b</b> {c}\n</p>", "javascript")
    assert " ".join(parsed.tokens) == "x = < p > < b > a b </ b > { c } </ p >"
    assert parsed.problems == ()


def test_a_problem_is_told_once():
    """Whose node ERROR holds another at the same place."""
    problems = parse_with_grammar("?", "javascript").problems
    assert [str(problem) for problem in problems] == ["line 1, column 1: syntax error at '?'"]


def test_many_problems_are_told_in_part_and_briefly():
    problems = parse_with_grammar("long_name = = another_long_name_of_a_variable;\n" * 200, "go").problems
    assert len(problems) == MAX_PROBLEMS
    assert problems[0].message == "syntax error at '='"
    problems = parse_with_grammar(
        "} a_long_name another_long_name and_another_one_of_many_words\n" * 9, "java"
    ).problems
    assert max(len(problem.message) for problem in problems) == len("syntax error at ''") + 40


def test_a_missing_name_is_no_node():
    parsed = parse_with_grammar("if () x", "javascript")
    assert str(parsed.problems[0]) == "line 1, column 5: syntax error, expected 'identifier'"
    assert parsed.node_types.count("identifier") == 1


def test_lone_surrogates_do_not_move_columns():
    parsed = parse_with_grammar("'\ud800é' + ab", "javascript")
    assert parsed.tokens == ("'?é'", "+", "ab")
    assert parsed.spans[:, 1].tolist() == [0, 5, 7]


def test_a_long_line_takes_time_in_proportion():
    """Columns are told in bytes: characters counted from the line's beginning for each token would take minutes."""
    text = "x = ['é', " + "ab, " * 20_000 + "]"
    taken = []
    for line in (text.replace("é", "e"), text):
        start = time.process_time()
        parsed = parse_with_grammar(line, "javascript")
        taken.append(time.process_time() - start)
        assert parsed.spans[-1].tolist() == [1, len(text) - 1, 1, len(text)]
    assert taken[1] < 5 * taken[0]


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
    assert parse_with_grammar(("\ufeff" + text).encode("utf-16-be"), "javascript").tokens == parsed.tokens
    assert parsed.tokens == ("é", "=", "'ü'", ";", "xy", "=", "1")
    assert parsed.spans[:, 1].tolist() == [0, 2, 4, 7, 9, 12, 14]


def test_unknown_language_names_the_nearest():
    with pytest.raises(ValueError, match=r"no grammar of 'javascrip'; did you mean 'javascript'\?"):
        parse_with_grammar("", "javascrip")
