"""The variables of a function by their names, where they are read, and which could stand at a place instead."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import numpy as np

from relbias.data.source.parsed import ACCESSES, ParsedSource

SCOPES = ("Lambda", "ListComp", "SetComp", "DictComp", "GeneratorExp")
"""Nodes in a function that have variables of their own."""
_BINDING = ("Name", "alias", "FunctionDef", "AsyncFunctionDef", "ClassDef", "ExceptHandler", "MatchAs", "MatchStar")
"""Nodes whose own name may be that of a class's attribute, where it stands in the class."""
_READ, _WRITE, _UPDATE = (ACCESSES.index(name) for name in ("read", "write", "update"))


@dataclass(frozen=True, eq=False)
class OwnVariables:
    """What is known of the variables of a function, those of functions in it left out.

    Variables of one name count as one: those of two comprehensions may share theirs, and a reader who is asked for the
    right variable answers with a name.

    Args:
        names: in the order in which they are first bound, so that no use of a variable changes a number.
        numbers: (N,) int64, for each token the number of the variable that it is an occurrence of, or -1.
        reads: the tokens that read one, in functions in it too.
    """

    names: tuple[str, ...]
    numbers: np.ndarray
    reads: tuple[int, ...]


def own_variables(function: ParsedSource) -> OwnVariables:
    """The variables of a function.

    Args:
        function: a part of a file, the tokens of one function.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> own = own_variables(parse_python("def f(n):\\n    m = n\\n    return m").part(0, 11))
        >>> own.names, own.numbers.tolist(), own.reads
        (('n', 'm'), [-1, -1, -1, 0, -1, -1, 1, -1, 0, -1, 1], (8, 10))
    """
    variables = function.variable_of_token.numpy()
    of_function = function.function_of_variable.numpy()
    accesses = function.access_of_token.numpy()
    is_own = np.append(of_function == 0, False)[variables]  # the function is the first in itself, and -1 the last place
    places: dict[str, int] = {}
    for token in np.flatnonzero(is_own & ((accesses == _WRITE) | (accesses == _UPDATE))).tolist():
        places.setdefault(function.tokens[token], len(places))
    numbers = np.full(len(variables), -1, dtype=np.int64)
    for token in np.flatnonzero(is_own).tolist():
        numbers[token] = places.get(function.tokens[token], -1)
    reads = tuple(np.flatnonzero((numbers >= 0) & (accesses == _READ)).tolist())
    return OwnVariables(tuple(places), numbers, reads)


class Visible:
    """Which of a function's own variables a name would mean at a token.

    A variable of a comprehension or a lambda is visible inside it, but not in what its first `for` runs over, and not
    in default values; in the body of a function inside the function, a name that is its own variable is not visible.

    Args:
        function: a part of a file, the tokens of one function.
        own: its variables.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> function = parse_python("def f(a):\\n    return [b for b in a], a").part(0, 16)
        >>> visible = Visible(function, own_variables(function))
        >>> [sorted(visible.at(token)) for token in (8, 12, 15)]  # the first b, and a twice
        [['a', 'b'], ['a'], ['a']]
    """

    def __init__(self, function: ParsedSource, own: OwnVariables) -> None:
        self._parents = function.parents.tolist()
        self._types = function.node_types
        self._nodes = function.node_of_token.tolist()
        self._children: dict[int, list[int]] = {}
        for node, parent in enumerate(self._parents):
            self._children.setdefault(parent, []).append(node)
        variables, accesses = function.variable_of_token.tolist(), function.access_of_token.tolist()
        of_function = function.function_of_variable.tolist()
        self._variables: dict[str, dict[int, int]] = {name: {} for name in own.names}  # by the node that they belong to
        seen: set[int] = set()
        for token, variable in enumerate(variables):
            if own.numbers[token] >= 0 and accesses[token] in (_WRITE, _UPDATE) and variable not in seen:
                seen.add(variable)
                scope = self._scope(self._nodes[token])
                self._variables[function.tokens[token]].setdefault(scope, variable)
        self._inner: dict[int, set[str]] = {}  # by the nodes of functions in the function, the names of their variables
        for number, (_, node, first, last) in enumerate(function.functions):
            if number:
                bound = (token for token in range(first, last) if variables[token] >= 0)
                names = {function.tokens[token] for token in bound if of_function[variables[token]] == number}
                self._inner[node] = names
        self._classes: dict[int, set[str]] = {}  # likewise of classes, what is bound in them or declared as global
        for token, variable in enumerate(variables):
            name, kind = function.tokens[token], self._types[self._nodes[token]]
            if variable < 0 and name in self._variables and kind in (*_BINDING, "Global"):
                place = self._body(self._nodes[token])
                if self._is(place, "ClassDef"):
                    self._classes.setdefault(place, set()).add(name)
                elif kind in ("Name", "Global") and place in self._inner:
                    self._inner[place].add(name)

    def at(self, token: int) -> dict[str, int]:
        """The names that can stand at a token, and for each the number in `variable_of_token` that it would have."""
        scopes, hidden = self._around(self._nodes[token])
        found = {}
        for name, variables in self._variables.items():
            inner = next((scope for scope in scopes if scope in variables), None)
            if inner is not None and name not in hidden:
                found[name] = variables[inner]
        return found

    def _scope(self, node: int) -> int:
        """The comprehension or lambda that a name which is bound at a node belongs to, or -1 for the function."""
        while node >= 0:
            parent = self._parents[node]
            if self._types[node] in SCOPES:
                return node
            if self._is(parent, "NamedExpr") and node == self._children[parent][0]:
                return -1
            node = parent
        return -1

    def _around(self, node: int) -> tuple[list[int], set[str]]:
        """The comprehensions and lambdas around a node, from the inside, and -1 at last; and what functions hide."""
        scopes: list[int] = []
        hidden: set[str] = set()
        below, last = -1, -1  # the two nodes that the way up came from
        in_class = True  # whether the attributes of a class are visible by their names: in no scope within it
        while node >= 0:
            if node in self._inner and self._is_statement(below):
                hidden |= self._inner[node]
                in_class = False
            if in_class and node in self._classes and self._is_statement(below):
                hidden |= self._classes[node]
            if self._types[node] in SCOPES and not self._is_outside(node, below, last):
                scopes.append(node)
                in_class = False
            node, below, last = self._parents[node], node, below
        return [*scopes, -1], hidden

    def _body(self, node: int) -> int:
        """The function or the class inside the function in whose body a node is, or -1."""
        below = -1
        while node >= 0 and not (
            (node in self._inner or self._types[node] == "ClassDef") and self._is_statement(below)
        ):
            node, below = self._parents[node], node
        return node

    def _is_outside(self, scope: int, child: int, grandchild: int) -> bool:
        """Whether what is in a comprehension or a lambda is evaluated before it has variables."""
        if self._types[scope] == "Lambda":
            return self._is(child, "arguments")
        first = next(clause for clause in self._children[scope] if self._is(clause, "comprehension"))
        return child == first and self._children[child][1] == grandchild

    def _is(self, node: int, name: str) -> bool:
        return node >= 0 and self._types[node] == name

    def _is_statement(self, node: int) -> bool:
        return node >= 0 and issubclass(getattr(ast, self._types[node]), ast.stmt)
