"""Which functions of its own a Python file calls."""

from __future__ import annotations

import ast
from bisect import bisect_left

from relbias.data.source.names import PythonFile
from relbias.data.source.scope import Scope
from relbias.data.source.scopes import Scopes


def read_calls(file: PythonFile, names: dict[ast.AST, int], scopes: Scopes) -> list[tuple[int, int]]:
    """The edges from the name of a called function to the name in its definition, where that is in the file.

    Known are functions that are called by their plain names, and methods that are called on the first parameter of a
    method of the same class (`self.name()`). Of several definitions it is the last, or the last before a call in the
    same scope.

    Args:
        file: its tree and its tokens.
        names: the token of a node's name, from :func:`~relbias.data.source.names.name_tokens`.
        scopes: of the file.
    """
    definitions: dict[tuple[Scope | None, str], list[int]] = {}
    for node, scope in zip(file.nodes, scopes.of_node, strict=True):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in names:
            name = scope.own_name(node.name)
            definitions.setdefault((scope.find(name), name), []).append(names[node])
    edges = []
    for node, scope in zip(file.nodes, scopes.of_node, strict=True):
        if isinstance(node, ast.Call) and node.func in names:
            where, name = _called(node.func, scope)
            found = definitions.get((where, name), [])
            if found:
                token = names[node.func]
                before = bisect_left(found, token) if where is scope else 0
                edges.append((token, found[before - 1]))
    return edges


def _called(function: ast.AST, scope: Scope) -> tuple[Scope | None, str]:
    """The scope whose name is called, and the name."""
    if isinstance(function, ast.Name):
        name = scope.own_name(function.id)
        return scope.find(name), name
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        receiver = scope.own_name(function.value.id)
        method = scope.find(receiver)
        in_class = method is not None and method.above is not None and method.above.kind == "class"
        if in_class and receiver == method.first_parameter:
            return method.above, scope.own_name(function.attr)
    return None, ""
