"""Batches of functions: their tokens, trees, edges and variables, padded to the largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from relbias.data.source.edges import EDGE_TYPES, program_edges
from relbias.data.source.functions import FileFunction
from relbias.data.source.node_types import NodeTypes
from relbias.data.source.own_variables import Visible
from relbias.data.source.parsed import ParsedSource
from relbias.data.source.vocabulary import SourceVocabulary


@dataclass(frozen=True, eq=False)
class Encoded:
    """A function as numbers.

    Args:
        function: the function.
        words: (N, W) int64, see :class:`~relbias.data.source.vocabulary.SourceVocabulary`.
        parents: (V,) int32, the node above each node.
        types: (V,) int64, see :class:`~relbias.data.source.node_types.NodeTypes`.
        nodes: (N,) int32, the node of each token.
        is_self: (N,) bool, whether a token is the name self.
    """

    function: FileFunction
    words: np.ndarray
    parents: np.ndarray
    types: np.ndarray
    nodes: np.ndarray
    is_self: np.ndarray

    @classmethod
    def of(cls, function: FileFunction, vocabulary: SourceVocabulary, types: NodeTypes) -> Encoded:
        """A function in the words of a vocabulary, which has `max_words`, and in the node types with numbers."""
        source = function.source
        is_self = np.array([token == "self" for token in source.tokens])
        words = vocabulary.encode(source).numpy()
        nodes = types.encode(source).numpy()
        return cls(function, words, source.parents.numpy(), nodes, source.node_of_token.numpy(), is_self)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The edges of the function as it stands in the file, see :func:`edge_sets`."""
        return edge_sets(self.function.source)

    @cached_property
    def visible(self) -> Visible:
        """Which of the function's own variables are visible where."""
        return Visible(self.function.source, self.function.own)


@dataclass(frozen=True, eq=False)
class Row:
    """What a row of a batch is made of: a function, and what is other in its program than in the file.

    Args:
        encoded: the function.
        edges: the pairs of tokens with edges and the types of them, from :func:`edge_sets`.
        words: (N, W), of the row's program.
        variables: (N,), the number of the function's own variable that each token is an occurrence of, or -1.
    """

    encoded: Encoded
    edges: tuple[np.ndarray, np.ndarray]
    words: np.ndarray
    variables: np.ndarray


def edge_sets(source: ParsedSource) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of tokens of a program that have edges, and the sets of their types.

    Bit t of a set, worth 2^t, is an edge of the t-th of :data:`~relbias.data.source.edges.EDGE_TYPES` from i to j, and
    bit T + t one from j to i, of T types.

    Returns:
        (P,) int32, the pairs i N + j, and (P,) int32, their sets.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> pairs, sets = edge_sets(parse_python("x = x"))
        >>> pairs.tolist(), [[bit for bit in range(12) if code >> bit & 1] for code in sets.tolist()]
        ([1, 2, 3, 5, 6, 7], [[4], [2, 3, 9], [10], [10], [3, 8, 9], [4]])
    """
    n = len(source.tokens)
    edge_index, types = program_edges(source)
    flat, numbers = (edge_index[0] * n + edge_index[1]).numpy(), types.numpy()
    sets = np.zeros(n * n, dtype=np.int32)
    for number in range(len(EDGE_TYPES)):  # many times faster than np.bitwise_or.at
        sets[flat[numbers == number]] |= 1 << number
    square = sets.reshape(n, n)
    both = (square | square.T << len(EDGE_TYPES)).reshape(-1)
    pairs = np.flatnonzero(both)
    return pairs.astype(np.int32), both[pairs]


def batch_of(rows: Sequence[Row]) -> dict[str, Tensor]:
    """The rows in one batch.

    Returns:
        words (B, N, W) int64, 0 where a token has no more words; lengths (B,) int64, of the functions, in tokens;
        parents (B, V) int64, -1 for roots and padding; node_types (B, V) int64, 0 for padding; node_of_token (B, N)
        int64, -1 for padding; edges (B, N, N) int32, the sets of :func:`edge_sets`; variables (B, N) int64, -1 for
        none.
    """
    b, width = len(rows), rows[0].words.shape[1]
    n, v = max(len(row.encoded) for row in rows), max(len(row.encoded.parents) for row in rows)
    words = np.zeros((b, n, width), dtype=np.int64)
    parents = np.full((b, v), -1, dtype=np.int64)
    types = np.zeros((b, v), dtype=np.int64)
    nodes, variables = np.full((b, n), -1, dtype=np.int64), np.full((b, n), -1, dtype=np.int64)
    edges = np.zeros((b, n, n), dtype=np.int32)
    for place, row in enumerate(rows):
        count = len(row.encoded)
        words[place, :count] = row.words
        parents[place, : len(row.encoded.parents)] = row.encoded.parents
        types[place, : len(row.encoded.types)] = row.encoded.types
        nodes[place, :count] = row.encoded.nodes
        variables[place, :count] = row.variables
        pairs, sets = row.edges
        edges[place, pairs // count, pairs % count] = sets
    return {
        "words": torch.from_numpy(words),
        "lengths": torch.tensor([len(row.encoded) for row in rows]),
        "parents": torch.from_numpy(parents),
        "node_types": torch.from_numpy(types),
        "node_of_token": torch.from_numpy(nodes),
        "edges": torch.from_numpy(edges),
        "variables": torch.from_numpy(variables),
    }
