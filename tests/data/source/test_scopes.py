import pytest

from relbias.data.source.grammars import parse_with_grammar
from relbias.data.source.parsed import ACCESSES
from relbias.data.source.python import parse_python


def occurrences(text):
    """Each occurrence of a local variable: its name, its function, its number and its access."""
    parsed = parse_python(text)
    assert parsed.problems == ()
    found = []
    for token, variable, access in zip(
        parsed.tokens, parsed.variable_of_token.tolist(), parsed.access_of_token.tolist(), strict=True
    ):
        if variable >= 0:
            function = parsed.functions[parsed.function_of_variable[variable]].name
            found.append(f"{function}.{token}{variable} {ACCESSES[access]}")
        else:
            assert access == 0
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ndef f(a): b = a + x", "f.a0 write, f.b1 write, f.a0 read"),
        ("def f(a):\n    a += 1\n    del a", "f.a0 write, f.a0 update, f.a0 write"),
        ("def f(a, /, b, *c, d=x, **e): pass", "f.a0 write, f.b1 write, f.c2 write, f.d3 write, f.e4 write"),
        (
            "def f(a):\n    def g(b=a) -> a: return a",
            "f.a0 write, f.g1 write, g.b2 write, f.a0 read, f.a0 read, f.a0 read",
        ),
        ("def f():\n    @(a := d)\n    async def g(): pass", "f.a0 write, f.g1 write"),
        (
            "def f():\n    import a.b, c as d\n    from e import g, h as i",
            "f.a0 write, f.d1 write, f.g2 write, f.i3 write",
        ),
        ("def f():\n    try: pass\n    except (E) as e: e", "f.e0 write, f.e0 read"),
        ("def f(a):\n    global b\n    b = a\n    a.c(d=a)", "f.a0 write, f.a0 read, f.a0 read, f.a0 read"),
        (
            "def f():\n    a = 0\n    def g():\n        nonlocal a, b\n        a = 1\n    b = 2",
            "f.a0 write, f.g1 write, f.a0 none, f.b2 none, f.a0 write, f.b2 write",
        ),
        ("def f():\n    a: int\n    (b): int\n    (c): int = 1\n    a, b", "f.a0 none, f.c1 write, f.a0 read"),
        (
            "def f(a): return [a for a in a if (b := a)]",
            "f.a0 write, f.a1 read, f.a1 write, f.a0 read, f.b2 write, f.a1 read",
        ),
        (
            "def f(a): return lambda b, a=a: a + b",
            "f.a0 write, f.b1 write, f.a2 write, f.a0 read, f.a2 read, f.b1 read",
        ),
        ("a = [b for b in c]\nd = lambda e: e", ""),
        ("class C:\n    a = 1\n    b = [a for _ in a]\n    def f(self): return a, C", "f.self0 write"),
        (
            "def f(a, b):\n    class C(a):\n        b = a\n        c = b\n    return C",
            "f.a0 write, f.b1 write, f.C2 write, f.a0 read, f.a0 read, f.C2 read",
        ),
        (
            "def f(__a):\n    class C:\n        def g(self): return __a, __class__\n    return __a",
            "f.__a0 write, f.C1 write, g.self2 write, f.__a0 read",
        ),
        ("class _C:\n    def f(self, __a): return _C__a", "f.self0 write, f.__a1 write, f._C__a1 read"),
        (
            "def f(a):\n  match a:\n    case [b, *c] | {'k': b, **c,}: b\n    case K(d=e) as g: pass\n    case _: 1",
            "f.a0 write, f.a0 read, f.b1 write, f.c2 write, f.b1 write, f.c2 write, f.b1 read, f.e3 write, f.g4 write",
        ),
        ("def f(a):\n    b\n    return f'{a} {(b := 1)}'", "f.a0 write, f.b1 read"),
        ("def f(a):\n    with a as (b, c.d), e as g[a]: pass", "f.a0 write, f.a0 read, f.b1 write, f.a0 read"),
    ],
    ids=lambda text: text[:30],
)
def test_variables_of_functions(text, expected):
    assert ", ".join(occurrences(text)) == expected


def test_a_part_numbers_its_variables_anew():
    parsed = parse_python("def f(a):\n    b = a\n    def g(c):\n        return b + c + a\n")
    inner = parsed.functions[1]
    assert parsed.variable_of_token[parsed.variable_of_token >= 0].tolist() == [0, 1, 0, 2, 3, 1, 3, 0]
    assert parsed.function_of_variable.tolist() == [0, 0, 0, 1]
    part = parsed.part(inner.first, inner.last)
    assert part.variable_of_token.tolist() == [-1, 0, -1, 1, -1, -1, -1, 2, -1, 1, -1, 3]
    assert part.function_of_variable.tolist() == [-1, 0, -1, -1]
    assert part.access_of_token.equal(parsed.access_of_token[inner.first : inner.last])


def test_grammars_know_no_variables():
    parsed = parse_with_grammar("def f(a): return a", "python")
    assert parsed.variable_of_token.tolist() == [-1] * len(parsed.tokens)
    assert parsed.access_of_token.tolist() == [0] * len(parsed.tokens)
    assert parsed.function_of_variable.shape == (0,)
    assert parsed.flow.shape == parsed.computed_from.shape == parsed.calls.shape == (2, 0)
