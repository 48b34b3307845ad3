"""The order in which the names of a Python expression are evaluated."""

from __future__ import annotations

import ast
from typing import Any

from relbias.data.source.nodes import FORMATTED
from relbias.data.source.paths import Ends, Paths, Steps
from relbias.data.source.scopes import COMPREHENSIONS

RAISE = object()
"""Stands, among expressions, for the end of an operation that may raise an exception."""


def value(paths: Paths, expression: Any) -> Steps:
    """Follows the paths through an expression whose value is used, through the target of an assignment, or `RAISE`."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is ast.Name:
            paths.meet(node)
            continue
        if kind in _RAISING and paths.raising is not None:
            waiting.append(RAISE)
        if node is RAISE:
            paths.may_raise()
        elif kind in _BRANCHING or (kind is ast.Compare and len(node.ops) > 1):
            true, false = yield condition(paths, node)
            paths.now = paths.joined(true + false, paths.own[node][0])
        elif kind is ast.Lambda:
            yield _lambda(paths, node)
        elif kind in COMPREHENSIONS:
            yield _comprehension(paths, node)
        elif kind is ast.NamedExpr:
            waiting += (node.target, node.value)
        elif kind is ast.Dict:
            pairs = zip(node.keys, node.values, strict=True)
            waiting += [part for pair in pairs for part in pair if part is not None][::-1]
        elif kind not in _LEAVES:
            waiting += list(ast.iter_child_nodes(node))[::-1]


def condition(paths: Paths, expression: Any) -> Steps:
    """Follows the paths through an expression of which only the truth is used.

    Returns:
        The ends of the paths on which it is true, and of those on which it is false.
    """
    kind = type(expression)
    if kind is ast.UnaryOp and isinstance(expression.op, ast.Not):
        true, false = yield condition(paths, expression.operand)
        return false, true
    if kind is ast.Constant:
        return (paths.now, ()) if expression.value else ((), paths.now)
    if kind in _BRANCHING or (kind is ast.Compare and len(expression.ops) > 1):
        return (yield _BRANCHING.get(kind, _comparisons)(paths, expression))
    yield value(paths, expression)
    return paths.now, paths.now


def _all_or_any(paths: Paths, node: Any) -> Steps:
    decided: list[int] = []
    is_and = isinstance(node.op, ast.And)
    for operand in node.values:
        true, false = yield condition(paths, operand)
        paths.now = true if is_and else false
        decided += false if is_and else true
    others = paths.joined(decided, paths.own[node][0])
    return (paths.now, others) if is_and else (others, paths.now)


def _choice(paths: Paths, node: Any) -> Steps:
    paths.now, otherwise = yield condition(paths, node.test)
    true, false = yield condition(paths, node.body)
    paths.now = otherwise
    other_true, other_false = yield condition(paths, node.orelse)
    first, second = paths.own[node][:2]
    return paths.joined(true + other_true, first), paths.joined(false + other_false, second)


def _comparisons(paths: Paths, node: Any) -> Steps:
    false: list[int] = []
    yield value(paths, node.left)
    for operand in node.comparators:
        yield value(paths, operand)
        paths.may_raise()
        false += paths.now
    return paths.now, paths.joined(false, paths.own[node][0])


def _lambda(paths: Paths, node: Any) -> Steps:
    """A lambda is followed where it stands, as if it were called there at once, or not at all."""
    for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None:
            yield value(paths, default)
    before = paths.now
    for parameter in parameters(node.args):
        paths.meet(parameter)
    yield value(paths, node.body)
    paths.now = paths.joined(before + paths.now, paths.own[node][0])


def _comprehension(paths: Paths, node: Any) -> Steps:
    loops: list[tuple[int, Ends]] = []
    for generator, head in zip(node.generators, paths.own[node], strict=True):
        yield value(paths, generator.iter)
        paths.go(head)
        paths.may_raise()
        loops.append((head, paths.now))
        yield value(paths, generator.target)
        for test in generator.ifs:
            paths.now, false = yield condition(paths, test)
            paths.link(false, head)
    for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
        yield value(paths, part)
    for head, ends in reversed(loops):
        paths.link(paths.now, head)
        paths.now = ends


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters of a function, in the order of the text."""
    starred = [arguments.vararg] if arguments.vararg else []
    double = [arguments.kwarg] if arguments.kwarg else []
    return [*arguments.posonlyargs, *arguments.args, *starred, *arguments.kwonlyargs, *double]


_RAISING = frozenset(
    [
        *(ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare),
        *(ast.Starred, ast.Await, ast.Yield, ast.YieldFrom, *FORMATTED),
    ]
)
"""Operations that may raise an exception after their operands have been evaluated."""
_LEAVES = frozenset([ast.Constant, ast.Load, ast.Store, ast.Del, *FORMATTED])
_BRANCHING = {ast.BoolOp: _all_or_any, ast.IfExp: _choice}
