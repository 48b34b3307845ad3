import pytest

from relbias.data.source.python import parse_python


def steps(text):
    """What may be evaluated right after what, the tokens between paths left out: each name with its line."""
    source = parse_python("def f(" + text)
    assert source.problems == ()
    after = {}
    for i, j in source.flow.T.tolist():
        after.setdefault(i, []).append(j)
    events = {token for token, access in enumerate(source.access_of_token.tolist()) if access}

    def label(token):
        return f"{source.tokens[token]}{source.spans[token][0]}" if token in events else "def"

    found = set()
    for start in events | {0}:
        seen, waiting = set(), [*after.get(start, [])]
        while waiting:
            token = waiting.pop()
            if token in events:
                found.add(f"{label(start)}>{label(token)}")
            elif token not in seen:
                seen.add(token)
                waiting += after.get(token, [])
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,\nb): pass", "a1>b2"),
        (
            "a):\n a.c[\n  b] = (\n  b,\n  a)\n b = 1\n a += (\n b)\n del a",
            "a1>b4 b4>a5 a5>a2 a2>b3 b3>b6 b6>b8 b8>a7 a7>a9",
        ),
        ("a):\n if a:\n  b = 1\n elif (\n   a):\n  b = 2\n b", "a1>a2 a2>b3 a2>a5 b3>b7 a5>b6 a5>b7 b6>b7"),
        (
            "a):\n while a:\n  b = 1\n  if b: break\n  if (\n   b): continue\n  b = 2\n else:\n  b = 3\n b",
            "a1>a2 a2>b3 a2>b9 b3>b4 b4>b6 b4>b10 b6>a2 b6>b7 b7>a2 b9>b10",
        ),
        ("a):\n while True:\n  if a: break\n a", "a1>a3 a3>a3 a3>a4"),
        ("a):\n for b in a:\n  b\n a", "a1>a2 a2>b2 a2>a4 b2>b3 b3>b2 b3>a4"),
        (
            "a,\nb,\nc):\n (\n a and\n b or\n c)\n b if (\n a) else\\\n c\n c",
            "a1>b2 b2>c3 c3>a5 a5>b6 a5>c7 b6>c7 b6>a9 c7>a9 a9>b8 a9>c10 b8>c11 c10>c11",
        ),
        (
            "a,\nb,\nc):\n if a and\\\n b or not\\\n c:\n  a\n c",
            "a1>b2 b2>c3 c3>a4 a4>b5 a4>c6 b5>c6 b5>a7 c6>a7 c6>c8 a7>c8",
        ),
        ("a,\nb,\nc):\n a <\\\n b <\\\n c\n a", "a1>b2 b2>c3 c3>a4 a4>b5 b5>c6 b5>a7 c6>a7"),
        (
            "a):\n try:\n  a.d\n  b = g()\n except (\n   a) as c:\n  c\n except:\n  a\n else:\n  b.d\n a",
            "a1>a3 a3>b4 a3>a6 b4>b11 a6>c6 a6>a9 c6>c7 c7>a12 a9>a12 b11>a12",
        ),
        ("a):\n try:\n  b = g()\n except E:\n  b = 1\n b", "a1>b3 a1>b5 b3>b6 b5>b6"),
        ("a):\n try: unicode\n except E:\n  a\n a", "a1>a4 a1>a5 a4>a5"),
        ("a):\n try:\n  return g(\n    a)\n finally:\n  b = 1\n a", "a1>a4 a4>b6"),
        ("a):\n try:\n  a = 1\n  a.b\n finally:\n  a\n a", "a1>a3 a3>a4 a4>a6 a6>a7"),
        ("a):\n try:\n  try:\n   a.b\n  finally:\n   b = 1\n except:\n  a\n b", "a1>a4 a4>b6 b6>a8 b6>b9 a8>b9"),
        ("a):\n try:\n  for b in a:\n   b\n except:\n  a", "a1>a3 a3>b3 a3>a6 b3>b4 b4>b3 b4>a6"),
        (
            "a):\n for b in a:\n  try:\n   if b: continue\n  finally:\n   a\n a",
            "a1>a2 a2>b2 a2>a7 b2>b4 b4>a6 a6>b2 a6>a7",
        ),
        ("a):\n assert a, (\n  a)\n raise (\n  a)\n a", "a1>a2 a2>a3 a2>a5"),
        ("a):\n with a as (\n   b):\n  b", "a1>a2 a2>b3 b3>b4"),
        ("a):\n [\n a for\n a in\n a if\n a]\n a", "a1>a5 a5>a4 a5>a7 a4>a6 a6>a3 a6>a4 a6>a7 a3>a4 a3>a7"),
        ("a):\n a(lambda b:\n b +\\\n a)\n a", "a1>a2 a2>b2 a2>a5 b2>b3 b3>a4 a4>a5"),
        (
            "a):\n match a:\n  case [b,\n    a.c, c]:\n   b\n"
            "  case {1: a.c |\n   a.b} if (\n   c):\n   c\n  case b:\n   b\n a",
            "a1>a2 a2>a4 a2>a6 a2>b10 a4>b3 a4>a6 a4>b10 b3>c4 c4>b5 b5>a12 "
            "a6>a7 a6>c8 a7>c8 a7>b10 c8>c9 c8>b10 c9>a12 b10>b11 b11>a12",
        ),
        ("a):\n def g(b=\n   a): b\n class C(\n  a):\n  b = (\n  a)\n a", "a1>a3 a3>g2 g2>a5 a5>a7 a7>C4 C4>a8 b2>b3"),
        ("a, *b, c,\nd): pass", "a1>b1 b1>c1 c1>d2"),
        ("a,\nb):\n raise a from (\n  b)", "a1>b2 b2>a3 a3>b4"),
        ("a,\nb):\n a.c += (\n  b)", "a1>b2 b2>a3 a3>b4"),
        ("a):\n try:\n  @a\n  def g(): pass\n except:\n  a\n g", "a1>a3 a3>g4 a3>a6 g4>g7 a6>g7"),
        ("a):\n try:\n  class C:\n   b = a\n  C\n except:\n  a\n a", "a1>a4 a4>C3 a4>a7 C3>C5 C5>a8 a7>a8"),
        ("a):\n try:\n  a\n  import b, c\n except:\n  a\n a", "a1>a3 a3>b4 a3>a6 b4>c4 b4>a6 c4>a7 a6>a7"),
        ("a,\nb):\n try:\n  a = [*b]\n except:\n  a", "a1>b2 b2>b4 b4>a4 b4>a6"),
        ("a):\n try:\n  b = await a\n except:\n  a", "a1>a3 a3>b3 a3>a5"),
        ("a):\n try:\n  b = yield a\n except:\n  a", "a1>a3 a3>b3 a3>a5"),
        ("a,\nb):\n try:\n  match b:\n   case 1: pass\n except:\n  a", "a1>b2 b2>b4 b4>a7"),
        ("a):\n try:\n  with g() as b:\n   a\n except:\n  a\n a", "a1>b3 a1>a6 b3>a4 a4>a6 a4>a7 a6>a7"),
        ("a):\n try:\n  a.b\n except: pass\n try: a\n except:\n  a", "a1>a3 a3>a5 a3>a7"),
        ("a,\nb):\n try:\n  a, b = b, a\n except:\n  a", "a1>b2 b2>b4 b2>a6 b4>a4 a4>a4 a4>b4"),
        (
            "a,\nb):\n try:\n  if a < b < (\n   a): pass\n except:\n  b",
            "a1>b2 b2>a4 a4>b4 b4>a5 b4>b7 a5>b7",
        ),
    ],
)
def test_what_is_evaluated_next(text, expected):
    assert {step for step in steps(text) if not step.startswith("def")} == set(expected.split())
    assert "def>a1" in steps(text)
