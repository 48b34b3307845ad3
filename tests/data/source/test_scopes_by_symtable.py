"""The variables of functions against Python's own symbol tables, of real files and of made programs."""

import ast
import re
import symtable
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from relbias.data.source.python import parse_python

STDLIB = Path(sysconfig.get_path("stdlib"))
WITHIN = ("lambda", "listcomp", "setcomp", "dictcomp", "genexpr")
"""Tables of scopes whose variables are counted as the function's around them."""
COUNTED = Counter if sys.version_info < (3, 12) else set  # later a function's table has those of comprehensions too


def plain(name):
    """A private name as it is written."""
    return re.sub(r"^_\w*?[^_](?=__)", "", name) if not name.endswith("__") else name


def by_symtable(text):
    """For each function, by line and name, its own variables and those of functions around it."""
    found = {}

    def visit(table, own):
        if table.get_type() == "function":
            if table.get_name() not in WITHIN:
                frees = {plain(name) for name in table.get_frees()} - {"__class__"}
                own, _ = found[table.get_lineno(), table.get_name()] = ([], frees)
            own += [plain(name) for name in table.get_locals() if not name.startswith(".")]
        for child in table.get_children():
            visit(child, own)

    visit(symtable.symtable(text, "text", "exec"), [])
    return {key: (COUNTED(own), frees) for key, (own, frees) in found.items()}


def by_relbias(text):
    parsed = parse_python(text)
    assert parsed.problems == ()
    bodies = {
        (node.lineno, node.name): (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    variables, owners = parsed.variable_of_token.tolist(), parsed.function_of_variable.tolist()
    spans, names = parsed.spans.tolist(), {}
    for token, variable in enumerate(variables):
        names.setdefault(variable, parsed.tokens[token])
    found = {}
    for place, function in enumerate(parsed.functions):
        key = spans[function.first][0], function.name
        inside = [token for token in range(function.first, function.last) if tuple(spans[token][:2]) >= bodies[key]]
        within = {n for n, f in enumerate(parsed.functions) if function.first <= f.first < function.last}
        frees = {names[v] for v in {variables[t] for t in inside} if v >= 0 and owners[v] not in within}
        found[key] = (COUNTED(names[v] for v, owner in enumerate(owners) if owner == place), frees)
    return found


def in_strings(text):
    """The names in formatted strings, which are no tokens."""
    strings = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.JoinedStr))
    return {part.id for node in strings for part in ast.walk(node) if isinstance(part, ast.Name)}


@pytest.mark.parametrize("module", ["functools.py", "contextlib.py", "enum.py", "asyncio/locks.py"])
def test_variables_of_files(module):
    text = (STDLIB / module).read_text()
    ours, theirs, hidden = by_relbias(text), by_symtable(text), in_strings(text)
    assert ours.keys() == theirs.keys()
    for key, (own, frees) in theirs.items():
        assert ours[key][0] == own, key
        assert ours[key][1] - hidden == frees - hidden, key


NAMES = st.sampled_from(["a", "b", "c", "__d"])


@st.composite
def expressions(draw, depth=2):
    name, other = draw(NAMES), draw(NAMES)
    if not depth:
        return name
    one, two = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    return draw(
        st.sampled_from(
            [
                *(name, f"({one} + {two})", f"({name} := {one})", f"(lambda {name}, b={one}: {two})"),
                *(f"[{one} for {name} in {two}]", f"{{{one}: {two} for {name} in {other} for {other} in {name}}}"),
            ]
        )
    )


SIMPLE = (
    *(
        "{a} = {x}",
        "{a} += {x}",
        "{a}: {x}",
        "({a}): int = {x}",
        "{x}",
        "del {a}",
        "import {a}.x",
        "from x import y as {a}",
    ),
    *("for {a} in {x}: pass", "with {x} as ({a}, y.x): pass", "global {a}", "nonlocal {a}", "nonlocal {a}"),
    *("try: pass\nexcept x as {a}: pass", "match {x}:\n case [{a}, *y] | {{1: {a}, **y}}: pass", "{a}.b = b.{a}"),
)
DEFINITIONS = ("def {a}({b}={x}, *y) -> {x}:", "async def f(self, {a}):", "class {a}({x}):", "def {a}():", "def f():")


@st.composite
def blocks(draw, depth=3):
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        nested = depth and draw(st.booleans())
        kind = draw(st.sampled_from(DEFINITIONS if nested else SIMPLE))
        a, b, x = draw(NAMES), draw(NAMES), draw(expressions())
        lines += kind.format(a=a, b=b, x=x).split("\n")
        if nested:
            lines += [" " + line for line in draw(blocks(depth - 1))]
    return lines


def is_valid(lines):
    text = "\n".join(lines)
    try:
        # Python refuses `[(b := a) for b in a]`, but takes it where b is private to a class: not a program to compare.
        for each in (text, text.replace("__d", "d")):
            symtable.symtable(each, "text", "exec")
    except SyntaxError:
        return False
    return True


@st.composite
def programs(draw):
    """Without the declarations that Python refuses."""
    lines = draw(blocks())
    for place, line in reversed([*enumerate(lines)]):
        if not is_valid(lines) and line.strip().startswith(("global", "nonlocal")):
            lines[place] = line.replace(line.strip(), "pass")
    assume(is_valid(lines))
    return "\n".join(lines)


@given(programs())
@settings(max_examples=40, deadline=None)
def test_variables_of_made_programs(text):
    assert by_relbias(text) == by_symtable(text)
