import sysconfig
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from relbias.data.source.edges import EDGE_TYPES, program_edges
from relbias.data.source.grammars import parse_with_grammar
from relbias.data.source.parsed import ACCESSES, KINDS
from relbias.data.source.python import parse_python
from relbias.relations import EdgeSets

STDLIB = Path(sysconfig.get_path("stdlib"))


def edges_of(source):
    edges, types = program_edges(source)
    assert edges.dtype == types.dtype == torch.int64
    found = {name: set() for name in EDGE_TYPES}
    for i, j, kind in zip(*edges.tolist(), types.tolist(), strict=True):
        found[EDGE_TYPES[kind]].add((i, j))
    assert sum(len(pairs) for pairs in found.values()) == len(types)  # none is given twice
    return found


def named(source, pairs):
    """The pairs as text: each token with its place among those of the same text, from 1."""
    counts, labels = Counter(), []
    for token in source.tokens:
        counts[token] += 1
        labels.append(f"{token}{counts[token]}")
    return " ".join(f"{labels[i]}>{labels[j]}" for i, j in sorted(pairs))


def functions(module):
    parsed = parse_python((STDLIB / module).read_bytes())
    return [parsed.part(function.first, function.last) for function in parsed.functions]


def first_of_variable(source, neighbors, start, stops):
    """By a walk from one occurrence: those of its variable that are met first on the paths from it."""
    variable, found, seen, waiting = source.variable_of_token[start], set(), set(), list(neighbors[start])
    while waiting:
        token = waiting.pop()
        if token in seen:
            continue
        seen.add(token)
        if source.variable_of_token[token] == variable and stops[token]:
            found.add((start, token))
        else:
            waiting += neighbors[token]
    return found


@pytest.mark.parametrize("module", ["heapq.py", "json/decoder.py", "bisect.py", "fractions.py"])
def test_edges_equal_walks_and_loops(module):
    for source in functions(module):
        n, kinds = len(source.tokens), [KINDS[kind] for kind in source.kinds]
        found = edges_of(source)
        after, before = [[[] for _ in range(n)] for _ in range(2)]
        for i, j in source.flow.T.tolist():
            after[i].append(j)
            before[j].append(i)
        uses, writes = set(), set()
        access = [ACCESSES[code] for code in source.access_of_token]
        writing = [name in ("write", "update") for name in access]
        for token in range(n):
            if access[token] != "none":
                uses |= first_of_variable(source, after, token, [True] * n)
                writes |= first_of_variable(source, before, token, writing)
        assert found["next use"] == uses
        assert found["last write"] == writes
        assert found["same name"] == {
            (i, j)
            for i in range(n)
            for j in range(n)
            if i != j and kinds[i] == kinds[j] == "name" and source.tokens[i] == source.tokens[j]
        }
        own = {}
        for token in reversed(range(n)):
            own[int(source.node_of_token[token])] = token
        syntax = set()
        for node, token in own.items():
            above = int(source.parents[node])
            while above >= 0 and above not in own:
                above = int(source.parents[above])
            if above >= 0:
                syntax.add((token, own[above]))
        assert found["syntax"] == syntax


def test_edges_of_a_loop():
    source = parse_python("def f(a):\n    while a:\n        a = g(a, b=a)\n    return a")
    found = edges_of(source)
    # The occurrences are the parameter, the test, the target, two arguments and the result, in this order.
    assert named(source, found["next use"]) == "a1>a2 a2>a4 a2>a6 a3>a2 a4>a5 a5>a3"
    assert named(source, found["last write"]) == "a2>a1 a2>a3 a3>a1 a3>a3 a4>a1 a4>a3 a5>a1 a5>a3 a6>a1 a6>a3"
    assert named(source, found["computed from"]) == "a3>g1 a3>a4 a3>a5"
    assert found["calls"] == set()


def test_a_part_has_the_edges_within_it():
    """A function that is taken out of its file has no other edges than those of its own tokens there."""
    whole = parse_python((STDLIB / "heapq.py").read_bytes())
    everything = edges_of(whole)
    for function in whole.functions:
        part = edges_of(whole.part(function.first, function.last))
        for name in ("next use", "last write", "computed from", "same name", "calls"):
            inside = {
                (i - function.first, j - function.first)
                for i, j in everything[name]
                if function.first <= min(i, j) and max(i, j) < function.last
            }
            assert part[name] == inside


def changed(source, token, text, variable):
    """The source with another name at a token."""
    tokens, variables = list(source.tokens), source.variable_of_token.clone()
    tokens[token], variables[token] = text, variable
    return replace(source, tokens=tuple(tokens), variable_of_token=variables)


def test_edges_of_a_changed_name_are_those_of_the_changed_program():
    text = "def f(a, b):\n    if a:\n        b = a + 1\n    for c in b:\n        a(c, {})\n    return a"
    source = parse_python(text.format("a"))
    token = max(place for place, name in enumerate(source.tokens[:-2]) if name == "a")
    other = parse_python(text.format("b"))
    assert edges_of(changed(source, token, "b", int(other.variable_of_token[token]))) == edges_of(other)
    hidden = edges_of(changed(source, token, "?", -1))
    without = edges_of(parse_python(text.format("0")))
    assert not any(token in pair for name in ("next use", "last write", "same name") for pair in hidden[name])
    for name in EDGE_TYPES:
        assert hidden[name] == without[name] or name == "syntax"


def test_a_hidden_call_does_not_tell_its_name():
    source = parse_python("def f(n):\n    return f(n)")
    call = len(source.tokens) - 4
    assert edges_of(source)["calls"] == {(call, 1)}
    assert edges_of(changed(source, call, "?", -1))["calls"] == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = b.c(d, e=g)", "a1>b1 a1>d1 a1>g1"),
        ("a, (b, c) = d, e", "a1>d1 b1>e1 c1>e1"),
        ("a, *b = c, *d", "a1>c1 a1>d1 b1>c1 b1>d1"),
        ("a, b = c", "a1>c1 b1>c1"),
        ("a = b = c", "a1>c1 b1>c1"),
        ("a.b = a[c] = d", ""),
        ("a += b", "a1>b1"),
        ("a: b = c", "a1>c1"),
        ("a: b", ""),
        ("a((b := c))", "b1>c1"),
        ("for a, b in c(d): pass", "a1>c1 a1>d1 b1>c1 b1>d1"),
        ("async def f():\n async for a in b: pass", "a1>b1"),
        ("a = [b for b in c if d]", "a1>b1 a1>b2 a1>c1 a1>d1 b2>c1"),
        ("with a as b, c: pass", "b1>a1"),
        ("a = lambda b: b + f'{c}'", "a1>b2"),
        ("a = (\n    b\n)(c)", "a1>b1 a1>c1"),
        ("del a", ""),
    ],
)
def test_names_that_a_value_is_computed_from(text, expected):
    source = parse_python(text)
    assert named(source, edges_of(source)["computed from"]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(): pass\nf(f())\nx.f()", "f2>f1 f3>f1"),
        ("f()\nasync def f(): pass", "f1>f2"),
        ("def f(): f()\nf()\ndef f(): pass\nf()", "f2>f4 f3>f1 f5>f4"),
        ("def f(): pass\ndef g(f): f()\nclass C:\n    def f(self): f()", "f5>f1"),
        ("def f():\n    def g(): pass\n    return [g() for _ in g()]\ng()", "g2>g1 g3>g1"),
        ("class C:\n    def f(self): self.g(), self.f.g(), other.g()\n    def g(s): s.f(), self.f()", "g1>g4 f3>f1"),
        ("class C:\n    def __f(self): self.__f()\nclass D:\n    def g(self): self.__f()", "__f2>__f1"),
        (
            "class C:\n  def f(self):\n    def g(): self.h()\n    lambda self: self.h()\n  def h(self): pass",
            "h1>h3",
        ),
        ("import f\nf()\nlambda f: f()", ""),
        ("class C:\n    def f(self, other): other.f()", ""),
    ],
)
def test_calls_of_functions_of_the_file(text, expected):
    source = parse_python(text)
    assert named(source, edges_of(source)["calls"]) == expected


def test_edges_become_sets_of_relations():
    source = parse_python("def f(a):\n    return a")
    edges, types = program_edges(source)
    codes = EdgeSets(len(EDGE_TYPES)).from_edges([(edges, types)], len(source.tokens)).codes()[0, 0]
    first, second = (place for place, token in enumerate(source.tokens) if token == "a")
    bits = {name: 2**place for place, name in enumerate(EDGE_TYPES)}
    assert int(codes[first, second]) == bits["next use"] + bits["same name"]
    assert int(codes[second, first]) == bits["last write"] + bits["same name"]


@pytest.mark.parametrize("text", ["", "1", "x", "x\ny"])
def test_no_edges(text):
    edges, types = program_edges(parse_python(text))
    assert edges.shape == (2, 0)
    assert types.shape == (0,)


def test_grammars_have_edges_of_names_and_syntax_only():
    found = edges_of(parse_with_grammar("function f(x) { return x + 1 }", "javascript"))
    assert {name for name, pairs in found.items() if pairs} == {"same name", "syntax"}
