"""Uses of variables that are hidden, or that have the name of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relbias.data.source.batches import Encoded, Row, edge_sets
from relbias.data.source.renamed import hidden, renamed


def with_hidden(encoded: Encoded, tokens: Sequence[int]) -> Row:
    """The row of a function in which the names at some tokens are hidden."""
    words, variables = encoded.words.copy(), encoded.function.own.numbers.copy()
    places = list(tokens)
    words[places], variables[places] = 0, -1
    return Row(encoded, edge_sets(hidden(encoded.function.source, places)), words, variables)


def as_it_is(encoded: Encoded) -> Row:
    """The row of a function as it stands in the file."""
    return Row(encoded, encoded.edges, encoded.words, encoded.function.own.numbers)


def with_another(encoded: Encoded, token: int, name: str, variable: int) -> Row:
    """The row of a function in which another of its variables stands at one token.

    Args:
        encoded: the function.
        token: a use of one of its own variables.
        name: the other variable's.
        variable: its number in `variable_of_token`, as :class:`~relbias.data.source.own_variables.Visible` tells.
    """
    own = encoded.function.own
    number = own.names.index(name)
    words, variables = encoded.words.copy(), own.numbers.copy()
    words[token] = encoded.words[np.flatnonzero(own.numbers == number)[0]]
    variables[token] = number
    return Row(encoded, edge_sets(renamed(encoded.function.source, token, name, variable)), words, variables)
