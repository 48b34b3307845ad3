"""The order in which the names of the statements in the body of a Python function are evaluated."""

from __future__ import annotations

import ast
from typing import Any

from relbias.data.source.expressions import RAISE, condition, parameters, value
from relbias.data.source.paths import Ends, Paths, Steps
from relbias.data.source.patterns import pattern


class _Loop:
    def __init__(self, head: int) -> None:
        self.head = head
        self.breaks: list[int] = []


class _Finally:
    def __init__(self, head: int) -> None:
        self.head = head
        self.leaving: dict[str, None] = {}
        """The statements that lead through it: "break", "continue" or "return", in the order of the text."""


class Statements:
    """Follows the statements of a function's body.

    Args:
        paths: at its beginning.
    """

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.around: list[_Loop | _Finally] = []

    def follow(self, body: list[Any]) -> Steps:
        for statement in body:
            kind = type(statement)
            if kind in _COMPOUND:
                yield _COMPOUND[kind](self, statement)
            else:
                yield from self._values(_parts(statement))
                if kind in _LEAVING:
                    self.leave(_LEAVING[kind])
                elif kind is ast.Raise:
                    self.paths.may_raise()
                    self.paths.now = ()
                elif kind in (ast.Import, ast.ImportFrom):
                    for alias in statement.names:
                        self.paths.may_raise()
                        self.paths.meet(alias)

    def definition(self, node: Any) -> Steps:
        yield from self._values(node.decorator_list)
        yield from self._values((*node.args.defaults, *node.args.kw_defaults))
        yield from self._values(parameter.annotation for parameter in parameters(node.args))
        yield from self._values((node.returns, RAISE if node.decorator_list else None))
        self.paths.meet(node)

    def class_(self, node: Any) -> Steps:
        yield from self._values((*node.decorator_list, *node.bases, *node.keywords))
        yield self.follow(node.body)
        self.paths.may_raise()
        self.paths.meet(node)

    def _values(self, expressions: Any) -> Steps:
        for expression in expressions:
            if expression is not None:
                yield value(self.paths, expression)

    def if_(self, node: Any) -> Steps:
        paths = self.paths
        paths.now, otherwise = yield condition(paths, node.test)
        yield self.follow(node.body)
        ends, paths.now = paths.now, otherwise
        yield self.follow(node.orelse)
        paths.now = paths.joined(ends + paths.now, paths.own[node][0])

    def while_(self, node: Any) -> Steps:
        head = self.paths.own[node][0]
        self.paths.go(head)
        self.paths.now, otherwise = yield condition(self.paths, node.test)
        yield self._loop(node, head, otherwise)

    def for_(self, node: Any) -> Steps:
        yield value(self.paths, node.iter)
        head = self.paths.own[node][0]
        self.paths.go(head)
        self.paths.may_raise()
        otherwise = self.paths.now
        yield value(self.paths, node.target)
        yield self._loop(node, head, otherwise)

    def with_(self, node: Any) -> Steps:
        for item in node.items:
            yield from self._values((item.context_expr, RAISE, item.optional_vars))
        yield self.follow(node.body)
        self.paths.may_raise()

    def _loop(self, node: Any, head: int, otherwise: Ends) -> Steps:
        loop = _Loop(head)
        self.around.append(loop)
        yield self.follow(node.body)
        self.around.pop()
        self.paths.link(self.paths.now, head)
        self.paths.now = otherwise
        yield self.follow(node.orelse)
        self.paths.now = self.paths.joined((*self.paths.now, *loop.breaks), self.paths.own[node][-1])

    def leave(self, kind: str) -> None:
        """Ends the paths at what a `break`, `continue` or `return` leads to next."""
        for around in reversed(self.around):
            if isinstance(around, _Finally):
                self.paths.link(self.paths.now, around.head)
                around.leaving[kind] = None
                break
            if kind == "continue":
                self.paths.link(self.paths.now, around.head)
                break
            if kind == "break":
                around.breaks += self.paths.now
                break
        self.paths.now = ()

    def assert_(self, node: Any) -> Steps:
        true, self.paths.now = yield condition(self.paths, node.test)
        yield from self._values((node.msg, RAISE))
        self.paths.now = true

    def try_(self, node: Any) -> Steps:
        if not node.finalbody:
            yield self._handled(node)
            return
        paths, outside = self.paths, self.paths.raising
        last = _Finally(paths.own[node][-1])
        self.around.append(last)
        paths.raising = last.head
        yield self._handled(node)
        self.around.pop()
        paths.raising = outside
        goes_on, raises = bool(paths.now), last.head in paths.raised
        paths.link(paths.now, last.head)
        paths.now = (last.head,) if goes_on or raises or last.leaving else ()
        yield self.follow(node.finalbody)
        ends = paths.now
        if raises:
            paths.may_raise()
        for kind in last.leaving:
            paths.now = ends
            self.leave(kind)
        paths.now = ends if goes_on else ()

    def _handled(self, node: Any) -> Steps:
        """A `try` statement but for its `finally` clause."""
        paths, outside = self.paths, self.paths.raising
        heads = [paths.own[handler][0] for handler in node.handlers]
        if heads:
            paths.raising = heads[0]
        before = paths.now
        yield self.follow(node.body)
        paths.raising = outside
        if heads and heads[0] not in paths.raised:  # by a name that is not known, say
            paths.link(before, heads[0])
        yield self.follow(node.orelse)
        ends, paths.now = [*paths.now], tuple(heads[:1]) if before else ()
        for handler, head in zip(node.handlers, heads, strict=True):
            paths.go(head)
            yield from self._values((handler.type,))
            unmatched = paths.now if handler.type is not None else ()
            paths.meet(handler)
            yield self.follow(handler.body)
            ends += paths.now
            paths.now = unmatched
        paths.may_raise()
        paths.now = paths.joined(ends, paths.own[node][0])

    def match(self, node: Any) -> Steps:
        paths = self.paths
        yield value(paths, node.subject)
        ends: list[int] = []
        join, *heads = paths.own[node]
        for case, head in zip(node.cases, heads, strict=True):
            missed = yield pattern(paths, case.pattern)
            if case.guard is not None:
                paths.now, false = yield condition(paths, case.guard)
                missed += false
            yield self.follow(case.body)
            ends += paths.now
            paths.now = paths.joined(missed, head)
        paths.now = paths.joined((*ends, *paths.now), join)


def _parts(statement: Any) -> tuple[Any, ...]:
    """The expressions of a simple statement in the order of their evaluation."""
    kind = type(statement)
    if kind is ast.Assign:
        several = (ast.Tuple, ast.List)
        unpacks = any(isinstance(target, several) for target in statement.targets)
        may_fail = unpacks and not isinstance(statement.value, several)
        return (statement.value, RAISE if may_fail else None, *statement.targets)
    if kind is ast.AugAssign:
        target, of = statement.target, statement.value
        return (of, RAISE, target) if isinstance(target, ast.Name) else (target, of, RAISE)
    if kind is ast.AnnAssign:  # whose annotation is not evaluated in a function
        only_declared = statement.value is None and isinstance(statement.target, ast.Name)
        return () if only_declared else (statement.value, statement.target)
    if kind is ast.Delete:
        return tuple(statement.targets)
    if kind is ast.Raise:
        return (statement.exc, statement.cause)
    if kind in (ast.Expr, ast.Return):
        return (statement.value,)
    return ()


_COMPOUND = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), Statements.definition),
    ast.ClassDef: Statements.class_,
    ast.If: Statements.if_,
    ast.While: Statements.while_,
    **dict.fromkeys((ast.For, ast.AsyncFor), Statements.for_),
    **dict.fromkeys((ast.With, ast.AsyncWith), Statements.with_),
    **dict.fromkeys((ast.Try, ast.TryStar), Statements.try_),
    ast.Match: Statements.match,
    ast.Assert: Statements.assert_,
}
_LEAVING = {ast.Break: "break", ast.Continue: "continue", ast.Return: "return"}
