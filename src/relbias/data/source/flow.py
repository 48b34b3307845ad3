"""The control flow of Python functions, between the names that they evaluate."""

from __future__ import annotations

import ast

from relbias.data.source.expressions import parameters
from relbias.data.source.names import PythonFile
from relbias.data.source.paths import Paths, run
from relbias.data.source.scopes import COMPREHENSIONS
from relbias.data.source.statements import Statements


def read_flow(
    file: PythonFile, names: dict[ast.AST, int], node_of_token: list[int], is_event: list[bool]
) -> list[tuple[int, int]]:
    """The edges from a token to those that may be evaluated right after it, for all functions of a file.

    A path goes through occurrences of variables, in the order in which Python evaluates them: a value before what it is
    assigned to, and a name that is updated (`x += 1`) after what it is updated with. Where several paths part or meet
    it goes through a keyword or an operator of the statement or the expression, so that there are not more than a few
    edges for a token. A function begins at its `def`; its body has paths of its own. The bodies of lambdas and of
    generator expressions are followed where they stand, as if they were called there at once or not at all.

    An exception may be raised by each operation, such as a call, after its operands, but not by a name alone. The paths
    through a `finally` clause are shared by all that lead to it. That a `with` statement may end exceptions is not
    known, nor are values, save constants: each other loop may end at once.

    Args:
        file: its tree and its tokens.
        names: the token of a node's name, from :func:`~relbias.data.source.names.name_tokens`.
        node_of_token: the number of the lowest node that a token lies in.
        is_event: for each token, whether it is an occurrence of a variable that is read or written there.
    """
    paths = Paths(names, _own_tokens(file, node_of_token), is_event)
    for node in file.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            paths.now, paths.raising = (paths.own[node][0],), None
            for parameter in parameters(node.args):
                paths.meet(parameter)
            run(Statements(paths).follow(node.body))
    return sorted(paths.edges)


def _own_tokens(file: PythonFile, node_of_token: list[int]) -> dict[ast.AST, list[int]]:
    """The tokens of nodes where paths part or meet: of each, more than it has such places."""
    own: dict[ast.AST, list[int]] = {}
    for token, number in enumerate(node_of_token):
        node = file.nodes[number]
        word = _WORDS.get(type(node))
        if word is not None and (not word or file.tokens[token] in word):
            own.setdefault(node, []).append(token)
    return own


_WORDS: dict[type[ast.AST], tuple[str, ...]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), ("def",)),
    **dict.fromkeys((ast.If, ast.While, ast.For, ast.AsyncFor, ast.Lambda, ast.BoolOp, ast.IfExp, ast.Compare), ()),
    **dict.fromkeys(COMPREHENSIONS, ("for",)),
    **dict.fromkeys((ast.Try, ast.TryStar), ("try", "finally")),
    ast.ExceptHandler: ("except",),
    ast.Match: ("match", "case"),
    ast.MatchOr: ("|",),
}
