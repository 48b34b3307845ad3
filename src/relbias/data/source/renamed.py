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
    callers = [call for call in map(partial(_call_at, source.tokens), new) if call is not None]
    return replace(changed, calls=_calls(changed, callers)) if callers else changed


def _call_at(tokens: Sequence[str], token: int) -> int | None:
    """The name of a function that is called by the name at a token, itself or one that is looked up in it."""
    if tokens[token + 1 : token + 2] == ("(",):
        return token
    if tokens[token + 1 : token + 2] == (".",) and tokens[token + 3 : token + 4] == ("(",):
        return token + 2
    return None


def _calls(changed: ParsedSource, callers: Sequence[int]) -> Tensor:
    """The calls where names were changed: as those of the same name elsewhere, or of a function defined in this one."""
    tokens = changed.tokens
    pairs = changed.calls.T.tolist()
    kept = [(caller, definition) for caller, definition in pairs if caller not in callers]
    found = set(kept)
    for call in callers:
        name = _called(tokens, call)
        found |= {(call, definition) for caller, definition in kept if _called(tokens, caller) == name}
        if len(name) == 1 and changed.variable_of_token[call] >= 0:
            same = (changed.variable_of_token == changed.variable_of_token[call]).nonzero()[:, 0].tolist()
            found |= {(call, place) for place in same if place and tokens[place - 1] == "def"}
    return torch.tensor(sorted(found), dtype=torch.int32).view(-1, 2).T


def _called(tokens: Sequence[str], call: int) -> Sequence[str]:
    return tokens[call - 2 : call + 1] if call > 1 and tokens[call - 1] == "." else tokens[call : call + 1]
