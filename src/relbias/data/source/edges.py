"""The edges of a program between its tokens: what is used next, what a value came from, what is called."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from relbias.data.source.parsed import ACCESSES, KINDS, ParsedSource

EDGE_TYPES = ("next use", "last write", "computed from", "same name", "syntax", "calls")
"""The types of :func:`program_edges`; the code of a type is its place in this tuple."""


def program_edges(source: ParsedSource) -> tuple[Tensor, Tensor]:
    """The typed edges between the tokens of a source, ready for `EdgeSets.from_edges`.

    An edge from i to j says:

    - "next use": j is an occurrence of the variable of i that may be the next to be evaluated. In a loop it may be i.
    - "last write": j wrote the variable of i, and may be the last before i that did.
    - "computed from": i is assigned a value in which j is a name.
    - "same name": i and j are two names of the same text.
    - "syntax": i is the first own token of a node of the tree, and j that of the nearest node above that has any.
    - "calls": i is called, and j is its name in its definition.

    They are those of the tokens and variables as given: with another text and another variable (or -1) at a token they
    are the edges of the changed program. The paths of the control flow, :attr:`ParsedSource.flow`, stay as they are.
    Next uses and last writes are found along all paths at once, as sets that grow until nothing changes
    (https://doi.org/10.1145/512927.512945).

    Args:
        source: a file, or a part of one. Only Python has edges of variables, values and calls.

    Returns:
        The tokens i and j of each edge, (2, E) int64, and its type, (E,) int64, a code in :data:`EDGE_TYPES`. No edge
        is given twice. Names that occur k times have k (k - 1) edges.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> source = parse_python("def f(x):\\n    y = x + 1\\n    return y")
        >>> edges, types = program_edges(source)
        >>> for (i, j), kind in zip(edges.T.tolist(), types.tolist()):
        ...     if EDGE_TYPES[kind] != "syntax":
        ...         print(f"{EDGE_TYPES[kind]}: {source.tokens[i]} {i} -> {source.tokens[j]} {j}")
        next use: x 3 -> x 8
        next use: y 6 -> y 12
        last write: x 8 -> x 3
        last write: y 12 -> y 6
        computed from: y 6 -> x 8
        same name: x 3 -> x 8
        same name: y 6 -> y 12
        same name: x 8 -> x 3
        same name: y 12 -> y 6
    """
    calls = source.calls.numpy()
    same_text = [source.tokens[i] == source.tokens[j] for i, j in calls.T.tolist()]
    found = (
        *_variable_edges(source),
        source.computed_from.numpy(),
        _same_name(source),
        _syntax(source),
        calls[:, np.array(same_text, dtype=bool)],  # a name that has been changed calls no more
    )
    edges = np.concatenate([np.asarray(pairs, dtype=np.int64).reshape(2, -1) for pairs in found], axis=1)
    types = np.repeat(np.arange(len(EDGE_TYPES)), [np.size(pairs) // 2 for pairs in found])
    return torch.from_numpy(edges), torch.from_numpy(types)


def _variable_edges(source: ParsedSource) -> tuple[list[list[int]], list[list[int]]]:
    """The next uses and the last writes."""
    accesses = source.access_of_token.tolist()
    variables = source.variable_of_token.tolist()
    events = [token for token, access in enumerate(accesses) if access and variables[token] >= 0]
    bits = {token: 1 << place for place, token in enumerate(events)}
    masks: dict[int, int] = {}
    for token, bit in bits.items():
        masks[variables[token]] = masks.get(variables[token], 0) | bit
    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for i, j in zip(*source.flow.tolist(), strict=True):
        after.setdefault(i, []).append(j)
        before.setdefault(j, []).append(i)
    own = {token: (bit, ~masks[variables[token]]) for token, bit in bits.items()}
    writes = {token: pair for token, pair in own.items() if accesses[token] != _READ}
    found = []
    for neighbors, order, stops in ((after, sorted(after, reverse=True), own), (before, sorted(before), writes)):
        sets = _reached(neighbors, order, stops)
        rows: list[list[int]] = [[], []]
        for token in events:
            rest = sets.get(token, 0) & masks[variables[token]]
            while rest:
                lowest = rest & -rest
                rows[0].append(token)
                rows[1].append(events[lowest.bit_length() - 1])
                rest ^= lowest
        found.append(rows)
    return found[0], found[1]


def _reached(
    neighbors: dict[int, list[int]], order: Iterable[int], stops: dict[int, tuple[int, int]]
) -> dict[int, int]:
    """The events that paths from each token meet, and of each variable only the first on a path.

    Args:
        neighbors: of each token, those that paths from it come to next.
        order: the tokens, such that most come after their neighbours.
        stops: for an event its own bit, and all bits but those of its variable, which it hides from what is behind it.
    """
    sets = dict.fromkeys(neighbors, 0)
    passed = {token: bit for token, (bit, _) in stops.items()}
    changed = True
    while changed:
        changed = False
        for token in order:
            union = 0
            for neighbor in neighbors[token]:
                union |= passed.get(neighbor, 0)
            if union != sets[token]:
                sets[token] = union
                bit, others = stops.get(token, (0, -1))
                passed[token] = union & others | bit
                changed = True
    return sets


_READ = ACCESSES.index("read")


def _same_name(source: ParsedSource) -> np.ndarray:
    positions = np.flatnonzero(source.kinds.numpy() == KINDS.index("name"))
    numbers: dict[str, int] = {}
    groups = np.array([numbers.setdefault(source.tokens[token], len(numbers)) for token in positions], dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    # Each token is paired with all of its group, which are in a row in that order.
    repeats = sizes[groups]
    first = np.repeat(np.arange(len(groups)), repeats)
    within = np.arange(len(first)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    second = order[starts[groups[first]] + within]
    pairs = positions[np.stack([first, second])]
    return pairs[:, pairs[0] != pairs[1]]


def _syntax(source: ParsedSource) -> list[list[int]]:
    first: dict[int, int] = {}
    for token, node in enumerate(source.node_of_token.tolist()):
        first.setdefault(node, token)
    nearest: list[int] = []  # above each node, the first token of the lowest node that has tokens of its own
    rows: list[list[int]] = [[], []]
    for node, parent in enumerate(source.parents.tolist()):
        above = -1 if parent < 0 else first.get(parent, nearest[parent])
        nearest.append(above)
        if above >= 0 and node in first:
            rows[0].append(first[node])
            rows[1].append(above)
    return rows
