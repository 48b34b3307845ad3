"""The order in which the names of a pattern of Python's `match` statement are evaluated."""

from __future__ import annotations

import ast
from typing import Any

from relbias.data.source.expressions import value
from relbias.data.source.paths import Paths, Steps


def pattern(paths: Paths, node: Any) -> Steps:
    """Follows the paths through a pattern, whose names are bound once all of it, or of an alternative, has matched.

    Returns:
        The ends of the paths on which it does not match, as a list, with repetitions.
    """
    missed: list[int] = []
    captures: list[ast.AST] = []
    yield _part(paths, node, missed, captures)
    for capture in captures:
        paths.meet(capture)
    return missed


def _part(paths: Paths, node: Any, missed: list[int], captures: list[ast.AST]) -> Steps:
    kind = type(node)
    if kind is ast.MatchOr:
        yield _alternatives(paths, node, missed)
    elif kind is ast.MatchAs:
        if node.pattern is not None:
            yield _part(paths, node.pattern, missed, captures)
        captures.append(node)
    elif kind is ast.MatchStar:
        captures.append(node)
    else:
        for expression in _EXPRESSIONS[kind](node):
            yield value(paths, expression)
            paths.may_raise()
            missed += paths.now
        missed += paths.now
        for part in (*getattr(node, "patterns", ()), *getattr(node, "kwd_patterns", ())):
            yield _part(paths, part, missed, captures)
        captures.append(node)  # a mapping may have a name for what is left


def _alternatives(paths: Paths, node: Any, missed: list[int]) -> Steps:
    ends: list[int] = []
    bars = paths.own[node]
    for number, alternative in enumerate(node.patterns):
        not_here = yield pattern(paths, alternative)
        ends += paths.now
        paths.now = paths.joined(not_here, bars[min(number, len(bars) - 1)])
    missed += paths.now
    paths.now = tuple(dict.fromkeys(ends))


_EXPRESSIONS = {
    ast.MatchValue: lambda node: (node.value,),
    ast.MatchSingleton: lambda node: (),
    ast.MatchSequence: lambda node: (),
    ast.MatchMapping: lambda node: node.keys,
    ast.MatchClass: lambda node: (node.cls,),
}
