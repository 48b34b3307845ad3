"""What is known of a piece of source code once it is parsed, whatever its language."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

KINDS = ("name", "keyword", "operator", "number", "string")
"""What a token can be; its code is its place in this tuple."""

ACCESSES = ("none", "read", "write", "update")
"""What a token does with its variable: "update" reads and then writes, as in `x += 1`, "none" only declares."""


class Problem(NamedTuple):
    """What could not be read, and where.

    Args:
        line: from 1.
        column: in characters, from 0.
        message: in one line.
    """

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column + 1}: {self.message}"


class Function(NamedTuple):
    """A function of a file, a method or a function in a function included.

    Args:
        name: "" where it has none.
        node: its node.
        first: its first token, after any decorators.
        last: the token after its last.
    """

    name: str
    node: int
    first: int
    last: int


def _no_edges() -> Tensor:
    return torch.empty(2, 0, dtype=torch.int32)


@dataclass(frozen=True, eq=False)
class ParsedSource:
    """Tokens, the syntax tree, and which node each token belongs to.

    Comments and layout are no tokens. A string is one token, whatever is embedded in it. The nodes are in the order of
    their places in the text, each before those below it, so that siblings are in order too.

    Args:
        language: such as "python".
        tokens: N texts.
        kinds: (N,) int32, codes in :data:`KINDS`.
        spans: (N, 4) int32, the line (from 1) and column (in characters, from 0) where a token begins, and where it has
            ended.
        parents: (V,) int32, the node above each node; -1 for the root.
        node_types: V names, such as "Call", of the parser's own.
        node_of_token: (N,) int32, the lowest node that a token lies in.
        variable_of_token: (N,) int32, the number of the local variable that a token is an occurrence of, -1 for other
            tokens. Local variables are what a function binds: its parameters, and names by any statement or expression
            in it; those of its comprehensions and lambdas are further variables of its own. A name in a function within
            it that means its variable is an occurrence too. Only Python's are known; elsewhere all are -1.
        access_of_token: (N,) int32, what a token does with its variable, a code in :data:`ACCESSES`. Parameters, and
            the names that `def`, `import`, `except` or `del` are followed by, are written.
        function_of_variable: (L,) int32, the function of each variable, by its place in `functions`; -1 in a part that
            does not hold the whole of that function.
        flow: (2, F) int32, edges from a token to those that may be evaluated right after it, among the occurrences of
            variables in a function and tokens that stand for the places where its paths part or meet, such as `if`.
        computed_from: (2, C) int32, edges from the token of an assigned name to the names in the value.
        calls: (2, K) int32, edges from the name of a called function to the name in its definition.
        functions: in the order of their nodes.
        problems: the errors that the parser met; what it could not read is left out, or as the parser repaired it.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> parsed = parse_python("x = f(1)")
        >>> parsed.tokens, [parsed.node_types[node] for node in parsed.node_of_token]
        (('x', '=', 'f', '(', '1', ')'), ['Name', 'Assign', 'Name', 'Call', 'Constant', 'Call'])
    """

    language: str
    tokens: tuple[str, ...]
    kinds: Tensor
    spans: Tensor
    parents: Tensor
    node_types: tuple[str, ...]
    node_of_token: Tensor
    variable_of_token: Tensor
    access_of_token: Tensor
    function_of_variable: Tensor = field(default_factory=lambda: _ints([]))
    flow: Tensor = field(default_factory=_no_edges)
    computed_from: Tensor = field(default_factory=_no_edges)
    calls: Tensor = field(default_factory=_no_edges)
    functions: tuple[Function, ...] = ()
    problems: tuple[Problem, ...] = ()

    @cached_property
    def _function_ranges(self) -> np.ndarray:
        """The first tokens of the functions, and the tokens after their last, (2, number of functions)."""
        return np.array([(function.first, function.last) for function in self.functions]).reshape(-1, 2).T

    def part(self, first: int, last: int) -> ParsedSource:
        """Some of the tokens, such as those of a function, with the tree down from the lowest node above them all.

        Variables that occur there are numbered anew, in the order of their first tokens. Edges are kept if both their
        tokens are.

        Args:
            first: the first token.
            last: the token after the last.

        Raises:
            ValueError: a range that is not within the tokens.

        Example:
            >>> from relbias.data.source.python import parse_python
            >>> parsed = parse_python("import os\\n\\ndef f(x):\\n    return x")
            >>> function = parsed.functions[0]
            >>> part = parsed.part(function.first, function.last)
            >>> part.tokens, part.node_types
            (('def', 'f', '(', 'x', ')', ':', 'return', 'x'), ('FunctionDef', 'arguments', 'arg', 'Return', 'Name'))
        """
        if not 0 <= first <= last <= len(self.tokens):
            raise ValueError(f"tokens {first} to {last} are not within the {len(self.tokens)} tokens of the source")
        parents = self.parents.numpy()  # of which few are looked at: a file can have many functions
        kept, top = _branches(parents, set(self.node_of_token[first:last].tolist()))
        place = {node: number for number, node in enumerate(kept)}
        begins, ends = self._function_ranges
        functions = np.flatnonzero((begins >= first) & (ends <= last)).tolist()
        variable_of_token, variables = _numbered_anew(self.variable_of_token[first:last].tolist())
        function_place = {function: number for number, function in enumerate(functions)}
        owners = [function_place.get(owner, -1) for owner in self.function_of_variable[variables].tolist()]
        return ParsedSource(
            language=self.language,
            tokens=self.tokens[first:last],
            kinds=self.kinds[first:last],
            spans=self.spans[first:last],
            parents=_ints([-1 if node == top else place[int(parents[node])] for node in kept]),
            node_types=tuple(self.node_types[node] for node in kept),
            node_of_token=_ints([place[node] for node in self.node_of_token[first:last].tolist()]),
            variable_of_token=_ints(variable_of_token),
            access_of_token=self.access_of_token[first:last],
            function_of_variable=_ints(owners),
            flow=_within(self.flow, first, last),
            computed_from=_within(self.computed_from, first, last),
            calls=_within(self.calls, first, last),
            functions=tuple(
                Function(name, place[node], begin - first, end - first)
                for name, node, begin, end in (self.functions[number] for number in functions)
            ),
            problems=self.problems,
        )


def _branches(parents: np.ndarray, nodes: set[int]) -> tuple[list[int], int]:
    """The nodes and what lies above them, in order, down from the lowest node above them all; and that node."""
    if not nodes:
        return [], -1
    below: dict[int, set[int]] = {}
    climbed = set(nodes)
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        parent = int(parents[node])
        if parent >= 0:
            below.setdefault(parent, set()).add(node)
            if parent not in climbed:
                climbed.add(parent)
                waiting.append(parent)
    top = min(climbed)  # the root: a node comes before those below it
    while top not in nodes and len(below[top]) == 1:
        climbed.remove(top)
        (top,) = below[top]
    return sorted(climbed), top


def _numbered_anew(variables: list[int]) -> tuple[list[int], list[int]]:
    """Numbers in the order of their first occurrence, and what they were before; -1 stays."""
    places: dict[int, int] = {}
    found = [places.setdefault(variable, len(places)) if variable >= 0 else -1 for variable in variables]
    return found, list(places)


def _within(edges: Tensor, first: int, last: int) -> Tensor:
    """The edges both of whose tokens are among those from `first` to `last`, in the numbers of these."""
    return edges[:, ((edges >= first) & (edges < last)).all(0)] - first


def _ints(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def innermost(token_starts: list[int], node_starts: list[int], node_ends: list[int]) -> list[int]:
    """The lowest node that each token lies in.

    Args:
        token_starts: the offsets where the tokens begin, in order.
        node_starts: likewise of the nodes, in the order of the tree.
        node_ends: the offsets after them.

    Returns:
        A node for each token; the root, node 0, for one that lies in none.

    Example:
        >>> innermost([0, 4, 8], node_starts=[0, 4], node_ends=[9, 6])
        [0, 1, 0]
    """
    found, open_nodes, following = [], [0], 1
    for start in token_starts:
        while following < len(node_starts) and node_starts[following] <= start:
            while len(open_nodes) > 1 and node_ends[open_nodes[-1]] <= node_starts[following]:
                open_nodes.pop()
            open_nodes.append(following)
            following += 1
        while len(open_nodes) > 1 and node_ends[open_nodes[-1]] <= start:
            open_nodes.pop()
        found.append(open_nodes[-1])
    return found
