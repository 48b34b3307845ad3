"""Trees for tests: random ones, and the syntax trees of modules."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

from hypothesis import strategies as st


def path_to_root(parents, node):
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


@st.composite
def forests(draw):
    """Parents before or after their children, several roots."""
    n = draw(st.integers(0, 9))
    order = draw(st.permutations(range(n)))
    parents = [-1] * n
    for place in range(1, n):
        above = draw(st.integers(-1, place - 1))
        parents[order[place]] = order[above] if above >= 0 else -1
    return parents


def syntax_tree(module: ModuleType) -> list[int]:
    """The parents of the nodes of a module's source, each generation after the last."""
    parents, nodes = [-1], [ast.parse(inspect.getsource(module))]
    for place, node in enumerate(nodes):  # not ast.walk: the parser shares nodes such as Load
        children = list(ast.iter_child_nodes(node))
        nodes.extend(children)
        parents.extend([place] * len(children))
    return parents
