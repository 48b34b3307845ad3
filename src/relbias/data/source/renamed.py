"""A program with other names, or with none, at some tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from relbias.data.source.parsed import ParsedSource

HIDDEN = "?"
"""The text of a name that is hidden begins with it, and its token's number follows: no other token has it."""


def hidden(source: ParsedSource, tokens: Sequence[int]) -> ParsedSource:
    """The program with uses of variables hidden: whatever told their names is gone.

    Args:
        source: a function.
        tokens: the uses.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> source = parse_python("def f(x):\\n    return x")
        >>> hidden(source, [7]).tokens[6:], hidden(source, [7]).variable_of_token.tolist()
        (('return', '?7'), [-1, -1, -1, 0, -1, -1, -1, -1])
    """
    return _changed(source, {token: (f"{HIDDEN}{token}", -1) for token in tokens})


def renamed(source: ParsedSource, token: int, name: str, variable: int) -> ParsedSource:
    """The program with another name at one token.

    A call there is one of the function that the same words call elsewhere in the program, or that it defines.

    Args:
        source: a function.
        token: the use of a variable.
        name: the other name.
        variable: its number in `variable_of_token`.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> source = parse_python("def f(x, y):\\n    return x")
        >>> changed = renamed(source, 9, "y", 1)
        >>> changed.tokens[8:], changed.variable_of_token[9].item()
        (('return', 'y'), 1)
    """
    return _changed(source, {token: (name, variable)})


def _changed(source: ParsedSource, names: Mapping[int, tuple[str, int]]) -> ParsedSource:
    tokens, variables = list(source.tokens), source.variable_of_token.clone()
    for token, (name, variable) in names.items():
        tokens[token], variables[token] = name, variable
    changed = replace(source, tokens=tuple(tokens), variable_of_token=variables)
    new = [token for token in names if tokens[token] != source.tokens[token]]
    callers = [call for call in map(partial(_call_at, source), new) if call is not None]
    return replace(changed, calls=_calls(changed, callers)) if callers else changed


def _call_at(source: ParsedSource, token: int) -> int | None:
    """The name of a function that is called by the name at a token, itself or one that is looked up in it.

    The tree says it, since there can be parentheses around either: what is called is the first node below a call.
    """
    node = int(source.node_of_token[token])
    above = int(source.parents[node])
    if above < 0 or node != above + 1:
        return None
    if source.node_types[above] == "Call":
        return token
    if source.node_types[above] == "Attribute" and above and source.node_types[above - 1] == "Call":
        own = (source.node_of_token == above).nonzero()[:, 0].tolist()
        return own[-1] if own and source.parents[above] == above - 1 else None
    return None


def _calls(changed: ParsedSource, callers: Sequence[int]) -> Tensor:
    """The calls where names were changed: as those of the same name elsewhere, or of a function defined in this one."""
    tokens = changed.tokens
    pairs = changed.calls.T.tolist()
    kept = [(caller, definition) for caller, definition in pairs if caller not in callers]
    found = set(kept)
    for call in callers:
        name = _called(changed, call)
        found |= {(call, definition) for caller, definition in kept if _called(changed, caller) == name}
        if len(name) == 1 and changed.variable_of_token[call] >= 0:
            same = (changed.variable_of_token == changed.variable_of_token[call]).nonzero()[:, 0].tolist()
            found |= {(call, place) for place in same if place and tokens[place - 1] == "def"}
    return torch.tensor(sorted(found), dtype=torch.int32).view(-1, 2).T


def _called(source: ParsedSource, call: int) -> Sequence[str]:
    """The name that is called; before it, where it is looked up in another name, that one."""
    node = int(source.node_of_token[call])
    if source.node_types[node] != "Attribute":
        return source.tokens[call : call + 1]
    receiver = (source.node_of_token == node + 1).nonzero()[:1, 0].tolist()  # none where a window begins after it
    return (*(source.tokens[token] for token in receiver), source.tokens[call])
