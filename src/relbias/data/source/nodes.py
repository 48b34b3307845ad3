"""The nodes of a Python tree in the order of the text, and where each stands."""

from __future__ import annotations

import ast
from typing import Any

from relbias.data.source.lines import Lines

NO_NODES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
"""Marks of a node rather than nodes: one object of each serves all trees, and they have no place in the text."""
FORMATTED = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))
"""Strings with expressions in them: one token, so that nothing below them has a token of its own."""


def read_nodes(tree: ast.Module, lines: Lines) -> tuple[list[ast.AST], list[int], list[int], list[int]]:
    """The nodes in the order of the text, the parent of each, and the offsets where they begin and have ended.

    Example:
        >>> nodes, parents, starts, ends = read_nodes(ast.parse("x = 1"), Lines(["x = 1"]))
        >>> [type(node).__name__ for node in nodes], parents, starts
        (['Module', 'Assign', 'Name', 'Constant'], [-1, 0, 1, 1], [0, 0, 0, 4])
    """
    nodes: list[ast.AST] = [tree]
    children: list[list[int]] = [[]]
    spans: list[list[int]] = [[0, lines.starts[-1]]]
    for number, node in enumerate(nodes):  # which grows
        if isinstance(node, FORMATTED):
            continue
        for field in node._fields:
            value = getattr(node, field, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, NO_NODES):
                    children[number].append(len(nodes))
                    nodes.append(child)
                    children.append([])
                    spans.append(span_of(child, lines))
    # Some nodes have no place of their own, and a function's lacks its decorators: each is widened to what is below.
    for number in range(len(nodes) - 1, 0, -1):
        for child in children[number]:
            if spans[child]:
                low, high = spans[number] or spans[child]
                spans[number] = [min(low, spans[child][0]), max(high, spans[child][1])]
        if getattr(nodes[number], "decorator_list", None):
            line, column = lines.place(spans[number][0])
            sign = lines.lines[line - 1].rfind("@", 0, column)
            spans[number][0] -= column - sign if sign >= 0 else 0
    order, parents, places = [], [], []
    waiting = [(0, -1)]
    while waiting:
        number, parent = waiting.pop()
        place = len(order)
        order.append(nodes[number])
        parents.append(parent)
        places.append(spans[number])
        below = [child for child in children[number] if spans[child]]  # not a list of no arguments
        waiting += [(child, place) for child in sorted(below, key=lambda child: spans[child][0], reverse=True)]
    return order, parents, [place[0] for place in places], [place[1] for place in places]


def span_of(node: Any, lines: Lines) -> list[int]:
    """The offsets where a node begins and has ended; nothing for one without a place of its own."""
    if not hasattr(node, "lineno"):
        return []
    return [lines.offset(node.lineno, node.col_offset), lines.offset(node.end_lineno, node.end_col_offset)]
