import pytest

from relbias.data.source.own_variables import Visible, own_variables
from relbias.data.source.parsed import ACCESSES
from relbias.data.source.python import parse_python


def function(text, number=0):
    parsed = parse_python(text)
    found = parsed.functions[number]
    return parsed.part(found.first, found.last)


def places(part, name):
    return [token for token, text in enumerate(part.tokens) if text == name]


def test_variables_are_numbered_in_the_order_in_which_they_are_bound():
    part = function("def f(a, *, b=1):\n    c = b + d\n    for e in a: c += e\n    return c")
    own = own_variables(part)
    assert own.names == ("a", "b", "c", "e")
    expected = [own.names.index(token) if token in own.names else -1 for token in part.tokens]
    assert own.numbers.tolist() == expected
    assert [part.tokens[token] for token in own.reads] == ["b", "a", "e", "c"]  # `c += e` is no read of c alone
    accesses = part.access_of_token.tolist()
    assert all(ACCESSES[accesses[token]] == "read" for token in own.reads)


def test_what_is_only_updated_is_a_variable_too():
    assert own_variables(function("def f(a):\n    b += a\n    return b")).names == ("a", "b")


def test_variables_of_one_name_are_one():
    part = function("def f(x):\n    y = [x for x in x]\n    return {x for x in y}")
    own = own_variables(part)
    assert own.names == ("x", "y")
    assert len(set(part.variable_of_token[places(part, "x")].tolist())) == 3
    assert set(own.numbers[places(part, "x")].tolist()) == {0}


def test_variables_of_inner_functions_are_not_own_and_their_reads_of_outer_ones_are():
    text = "def f(a):\n    def g(b):\n        return a + b\n    return g(a)"
    part = function(text)
    own = own_variables(part)
    assert own.names == ("a", "g")
    assert own.reads == tuple(sorted([*places(part, "a")[1:], places(part, "g")[1]]))
    inner = function(text, 1)
    assert own_variables(inner).names == ("b",)
    assert [inner.tokens[token] for token in own_variables(inner).reads] == ["b"]


def test_a_declaration_is_neither_bound_nor_read():
    part = function("def f():\n    def g():\n        nonlocal a\n        return a\n    a = b = 1\n    return g, b")
    own = own_variables(part)
    assert own.names == ("g", "a", "b")
    assert own.reads == (places(part, "a")[1], places(part, "g")[1], places(part, "b")[1])


@pytest.mark.parametrize(
    ("body", "token", "names"),
    [
        ("return [x for x in a], b", ("x", 0), "abx"),
        ("return [x for x in a], b", ("a", -1), "ab"),
        ("return [x for x in a], b", ("b", -1), "ab"),
        ("return [x for x in a for y in b]", ("a", -1), "ab"),
        ("return [x for x in a for y in b]", ("b", -1), "abxy"),
        ("return [x for x in a if x]", ("x", -1), "abx"),
        ("return [[y for y in x] for x in a]", ("y", 0), "abxy"),
        ("return [[y for y in x] for x in a]", ("x", 0), "abx"),
        ("return (lambda x: x + a)(b)", ("a", -1), "abx"),
        ("return (lambda x: x + a)(b)", ("b", -1), "ab"),
        ("return (lambda x=a: x + a)(b)", ("a", 1), "ab"),
        ("def g(c, a=a) -> a: return a\n    return g", ("a", 2), "abg"),
        ("def g(c, a=a) -> a: return a\n    return g", ("a", 3), "abg"),
        ("y = [x for z in a if (x := z)]; return x", ("x", -1), "abxy"),
        ("def g(a): return a + b\n    return g", ("b", -1), "bg"),
        ("def g(c): return a + b\n    return g", ("b", -1), "abg"),
        ("def g(c): return c(b=b, c=a)\n    return g", ("b", -1), "abg"),
    ],
)
def test_names_that_can_stand_at_a_token(body, token, names):
    part = function(f"def f(a, b):\n    {body}")
    own = own_variables(part)
    name, place = token
    place = places(part, name)[place]
    found = Visible(part, own).at(place)
    assert sorted(found) == sorted(names)
    for text, variable in found.items():
        assert variable in part.variable_of_token[places(part, text)].tolist()
    if name in own.names:
        assert found[name] == part.variable_of_token[place]


def test_the_innermost_variable_of_a_name_is_meant():
    part = function("def f(x, y):\n    return [x for x in y], x")
    found = Visible(part, own_variables(part))
    first, _, outer = places(part, "x")[1:]
    assert found.at(first)["x"] == part.variable_of_token[first] != part.variable_of_token[outer]
    assert found.at(outer)["x"] == part.variable_of_token[outer]
    assert found.at(places(part, "y")[1])["x"] == part.variable_of_token[outer]


@pytest.mark.parametrize(
    ("body", "place", "names"),
    [
        ("class C:\n  x = 1\n  z = y", 1, {"y"}),
        ("class C:\n  x = 1\n  def m(self, w=y): return y", 1, {"y"}),
        ("class C:\n  x = 1\n  def m(self, w=1): return y", 1, {"x", "y"}),
        ("class C:\n  x = 1\n  z = [y for _ in ()]", 1, {"_", "x", "y"}),
        ("class C:\n  def x(self): pass\n  z = y", 1, {"y"}),
        ("class C:\n  z = y.x", 1, {"x", "y"}),
        ("class C(y):\n  x = 1", 1, {"x", "y"}),
        ("def g():\n  global x\n  x = y", 1, {"y"}),
        ("def g(z=y):\n  global x\n  x = 2", 1, {"x", "y"}),
        ("def g():\n  nonlocal x\n  x = y", 1, {"x", "y"}),
    ],
)
def test_names_that_a_class_binds_and_those_that_are_declared_as_global(body, place, names):
    indented = body.replace("\n", "\n  ")
    part = function(f"def f(x, y):\n  {indented}\n")
    own = own_variables(part)
    found = set(Visible(part, own).at(places(part, "y")[place]))
    assert found - {"C", "g"} == names
