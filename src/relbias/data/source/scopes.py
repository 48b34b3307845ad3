"""Which variable a name in Python stands for: the scopes of a file and what is bound in them."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple
from unicodedata import normalize

from relbias.data.source.names import PythonFile
from relbias.data.source.nodes import FORMATTED
from relbias.data.source.parsed import ACCESSES
from relbias.data.source.scope import Scope

NONE, READ, WRITE, UPDATE = range(len(ACCESSES))
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Occurrence(NamedTuple):
    """A name in the text.

    Args:
        token: where it stands.
        access: a code in :data:`~relbias.data.source.parsed.ACCESSES`.
        scope: in which it is looked up.
        name: as `Scope.own_name` gives it.
    """

    token: int
    access: int
    scope: Scope
    name: str


class Scopes(NamedTuple):
    """The scopes of a file.

    Args:
        of_node: V, that in which each node is evaluated, or whose names it binds.
        occurrences: of names, but not those of attributes and of arguments given by name.
    """

    of_node: list[Scope]
    occurrences: list[Occurrence]

    def variables(self, num_tokens: int) -> tuple[list[int], list[int], list[int]]:
        """The local variables of the functions, numbered by their first tokens.

        Returns:
            The variable of each token, -1 for none; its access; and the function of each variable.
        """
        variables, accesses = [-1] * num_tokens, [NONE] * num_tokens
        numbers: dict[tuple[Scope, str], int] = {}
        functions: list[int] = []
        for token, access, scope, name in sorted(self.occurrences, key=lambda occurrence: occurrence.token):
            found = scope.find(name)
            if found is not None and found.function >= 0 and found.kind in ("function", "comprehension"):
                number = numbers.setdefault((found, name), len(functions))
                if number == len(functions):
                    functions.append(found.function)
                variables[token], accesses[token] = number, access
        return variables, accesses, functions


def read_scopes(file: PythonFile, tokens: dict[ast.AST, int]) -> Scopes:
    """The scopes of a file, by the rules of Python 3, without running it.

    Args:
        file: its tree and its tokens.
        tokens: of the names, from :func:`~relbias.data.source.names.name_tokens`.
    """
    reader = _Reader(tokens, file.tokens)
    of_node: list[Scope] = []
    for node, parent in zip(file.nodes, file.parents, strict=True):
        scope = reader.scopes.pop(node, None) or (of_node[parent] if parent >= 0 else Scope("module", None))
        of_node.append(scope)
        visit = _VISITS.get(type(node))
        if visit is not None:
            visit(reader, node, scope)
    return Scopes(of_node, reader.occurrences)


class _Reader:
    """Meets the nodes from the top down: each says which of those below it are of another scope than itself."""

    def __init__(self, tokens: dict[ast.AST, int], texts: list[str]) -> None:
        self.tokens = tokens
        self.texts = texts
        self.scopes: dict[ast.AST, Scope] = {}
        self.accesses: dict[ast.AST, int | None] = {}
        self.occurrences: list[Occurrence] = []
        self.num_functions = 0

    def meet(self, node: ast.AST, access: int, scope: Scope, name: str, token: int | None = None) -> None:
        name = scope.own_name(name)
        if access != READ:
            scope.bound.add(name)
        token = self.tokens.get(node) if token is None else token
        if token is not None:
            self.occurrences.append(Occurrence(token, access, scope, name))

    def name(self, node: Any, scope: Scope) -> None:
        access = self.accesses.pop(node, READ if isinstance(node.ctx, ast.Load) else WRITE)
        if access is not None:
            self.meet(node, access, scope, node.id)

    def updated(self, node: Any, scope: Scope) -> None:
        self.accesses[node.target] = UPDATE

    def annotated(self, node: Any, scope: Scope) -> None:
        if node.value is None and isinstance(node.target, ast.Name):
            self.accesses[node.target] = NONE if node.simple else None  # `(x): int` does not even make x a local

    def walrus(self, node: Any, scope: Scope) -> None:
        self.scopes[node.target] = scope.outside

    def formatted(self, node: Any, scope: Scope) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                scope.outside.bound.add(scope.own_name(part.target.id))

    def function(self, node: Any, scope: Scope) -> None:
        self.meet(node, WRITE, scope, node.name)
        inner = Scope("function", scope, self.num_functions, scope.class_name)
        self.num_functions += 1
        self._parameters(node.args, inner)
        self.scopes.update(dict.fromkeys(node.body, inner))

    def anonymous(self, node: Any, scope: Scope) -> None:
        inner = Scope("function", scope, scope.function, scope.class_name)
        self._parameters(node.args, inner)
        self.scopes[node.body] = inner

    def _parameters(self, arguments: ast.arguments, inner: Scope) -> None:
        positional = arguments.posonlyargs + arguments.args
        inner.first_parameter = inner.own_name(positional[0].arg) if positional else ""
        for parameter in (*positional, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if parameter is not None:
                self.meet(parameter, WRITE, inner, parameter.arg)

    def class_(self, node: Any, scope: Scope) -> None:
        self.meet(node, WRITE, scope, node.name)
        inner = Scope("class", scope, scope.function, node.name.lstrip("_"))
        self.scopes.update(dict.fromkeys(node.body, inner))

    def comprehension(self, node: Any, scope: Scope) -> None:
        inner = Scope("comprehension", scope, scope.function, scope.class_name)
        values = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        self.scopes.update(dict.fromkeys((*values, *node.generators), inner))
        self.scopes[node.generators[0].iter] = scope

    def alias(self, node: Any, scope: Scope) -> None:
        name = node.asname or node.name.split(".")[0]
        if name != "*":
            self.meet(node, WRITE, scope, name)

    def capture(self, node: Any, scope: Scope) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name is not None:
            self.meet(node, WRITE, scope, name)

    def declaration(self, node: Any, scope: Scope) -> None:
        names = [scope.own_name(name) for name in node.names]
        (scope.global_names if isinstance(node, ast.Global) else scope.nonlocal_names).update(names)
        first = self.tokens.get(node)
        if first is not None:
            for name, written, text in zip(
                names, node.names, self.texts[first : first + 2 * len(names) : 2], strict=False
            ):
                if normalize("NFKC", text) != written:  # a letter that is no token
                    break
                self.occurrences.append(Occurrence(first, NONE, scope, name))
                first += 2


_VISITS = {
    ast.Name: _Reader.name,
    ast.AugAssign: _Reader.updated,
    ast.AnnAssign: _Reader.annotated,
    ast.NamedExpr: _Reader.walrus,
    **dict.fromkeys(FORMATTED, _Reader.formatted),
    ast.FunctionDef: _Reader.function,
    ast.AsyncFunctionDef: _Reader.function,
    ast.Lambda: _Reader.anonymous,
    ast.ClassDef: _Reader.class_,
    **dict.fromkeys(COMPREHENSIONS, _Reader.comprehension),
    ast.alias: _Reader.alias,
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _Reader.capture),
    **dict.fromkeys((ast.Global, ast.Nonlocal), _Reader.declaration),
}
