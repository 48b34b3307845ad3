"""Which names the value of an assigned name is computed from in Python."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from relbias.data.source.names import PythonFile
from relbias.data.source.nodes import span_of


def read_assignments(file: PythonFile, names: dict[ast.AST, int]) -> list[tuple[int, int]]:
    """The edges from the token of an assigned name to each name in the value, attributes not included.

    Assigned are the targets of assignments of all forms, of loops and comprehensions, and of `with`. Where a tuple or a
    list is assigned to as many targets, each target has the names of its own element.

    Args:
        file: its tree and its tokens.
        names: the token of a node's name, from :func:`~relbias.data.source.names.name_tokens`.
    """
    readable = sorted(token for node, token in names.items() if type(node) is ast.Name)
    edges: set[tuple[int, int]] = set()
    for node in file.nodes:
        if type(node) in _ASSIGNED:
            for targets, value in _ASSIGNED[type(node)](node):
                if targets is None or value is None:
                    continue
                for name, source in _elements(targets, value):
                    if name in names:
                        start, end = (bisect_left(file.token_starts, place) for place in span_of(source, file.lines))
                        inside = readable[bisect_left(readable, start) : bisect_left(readable, end)]
                        edges.update((names[name], token) for token in inside)
    return sorted(edges)


_ASSIGNED: dict[type[ast.AST], Any] = {
    ast.Assign: lambda node: [(target, node.value) for target in node.targets],
    **dict.fromkeys((ast.AugAssign, ast.AnnAssign, ast.NamedExpr), lambda node: [(node.target, node.value)]),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.comprehension), lambda node: [(node.target, node.iter)]),
    ast.withitem: lambda node: [(node.optional_vars, node.context_expr)],
}


def _elements(target: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The names that are assigned to, each with the expression that it has its value from."""
    waiting = [(target, value)]
    while waiting:
        target, value = waiting.pop()
        if isinstance(target, ast.Name):
            yield target, value
        elif isinstance(target, ast.Starred):
            waiting.append((target.value, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = [value] * len(target.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
                values = values if starred else value.elts
            waiting += zip(target.elts, values, strict=True)
