"""Where the names that a Python tree holds stand among the tokens."""

from __future__ import annotations

import ast
from bisect import bisect_left
from typing import Any, NamedTuple

from relbias.data.source.lines import Lines


class PythonFile(NamedTuple):
    """The tree and the tokens of a file, with their places in characters from the beginning of the text.

    Args:
        lines: of the text.
        nodes: V, in the order of the text.
        parents: V, the number of the node above each; -1 for the module.
        starts: V, where the nodes begin, with their decorators.
        ends: V, where they have ended.
        tokens: N texts.
        token_starts: N, where the tokens begin.
        token_ends: N, where they have ended.
    """

    lines: Lines
    nodes: list[ast.AST]
    parents: list[int]
    starts: list[int]
    ends: list[int]
    tokens: list[str]
    token_starts: list[int]
    token_ends: list[int]


def name_tokens(file: PythonFile) -> dict[ast.AST, int]:
    """The token of the name that a node reads, binds or declares, for each node that has one.

    These are the names themselves, parameters, and the names of functions, classes, imports, exceptions and patterns.
    Of an attribute it is the name behind the dot, of an import in several parts the first, and of a declaration
    (`global`, `nonlocal`) the first of its names, which stand at every second token.

    Returns:
        A token for each node. A node whose token is not found is left out: `tokenize` of Python 3.11 does not know a
        few letters that names may have, such as "℘".
    """
    at = {offset: token for token, offset in enumerate(file.token_starts)}
    at_end = {offset: token for token, offset in enumerate(file.token_ends)}
    tokens, num_tokens = file.tokens, len(file.tokens)
    found = {}
    for node, start, end in zip(file.nodes, file.starts, file.ends, strict=True):
        kind = type(node)
        if kind is ast.Name or kind is ast.arg:
            token = at.get(start)
        elif kind is ast.Attribute:
            token = at_end.get(end)
        elif kind in _PLACES:
            token = _PLACES[kind](node, at.get(start), at_end.get(end), file)
        else:
            continue
        if token is not None and token < num_tokens and tokens[token].isidentifier():
            found[node] = token
    return found


def _definition(node: Any, first: int | None, last: int | None, file: PythonFile) -> int | None:
    # The decorators, which are before the definition's own place, may be of any form.
    place = bisect_left(file.token_starts, file.lines.offset(node.lineno, node.col_offset))
    return place + 1 + isinstance(node, ast.AsyncFunctionDef)


def _alias(node: Any, first: int | None, last: int | None, file: PythonFile) -> int | None:
    return last if node.asname else first


def _handler(node: Any, first: int | None, last: int | None, file: PythonFile) -> int | None:
    if node.name is None:
        return None
    place = bisect_left(file.token_starts, file.lines.offset(node.type.end_lineno, node.type.end_col_offset))
    while file.tokens[place : place + 1] == [")"]:
        place += 1
    return place + 1  # after "as"


def _capture(node: Any, first: int | None, last: int | None, file: PythonFile) -> int | None:
    return last if node.name is not None else None


def _rest(node: Any, first: int | None, last: int | None, file: PythonFile) -> int | None:
    if node.rest is None or last is None:
        return None
    return last - 2 if file.tokens[last - 1] == "," else last - 1


def _declaration(node: Any, first: int | None, last: int | None, file: PythonFile) -> int | None:
    return None if first is None else first + 1


_PLACES = {
    ast.FunctionDef: _definition,
    ast.AsyncFunctionDef: _definition,
    ast.ClassDef: _definition,
    ast.alias: _alias,
    ast.ExceptHandler: _handler,
    ast.MatchAs: _capture,
    ast.MatchStar: _capture,
    ast.MatchMapping: _rest,
    ast.Global: _declaration,
    ast.Nonlocal: _declaration,
}
