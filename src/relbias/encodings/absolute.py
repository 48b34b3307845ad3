"""What the encodings that a model applies at its input have in common."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Index, Relation, Sequence, SequenceIndex
from relbias.relations.lattice import Lattice
from relbias.terms import Terms


class InputEncoding(Encoding):
    """An encoding that a model applies once, to its tokens, by `embed`; it gives the layers no terms."""

    relations = (Sequence, Grid)

    @property
    def dim(self) -> int:
        """The size of a token, H D."""
        return self.num_heads * self.head_dim

    @abstractmethod
    def added(self, x: Tensor, index: SequenceIndex | GridIndex) -> Tensor:
        """What is added to the tokens x, (B, N, H D), of an index: (B or 1, N, H D)."""

    def embed(self, x: Tensor, index: SequenceIndex | GridIndex | None = None) -> Tensor:
        """Add to the tokens what the encoding makes of their positions.

        Args:
            x: (B, N, H D), the tokens.
            index: tells the positions, or the grid; by default those of the relation for N tokens.

        Returns:
            (B, N, H D), in x's dtype.

        Raises:
            ValueError: x has another size, or N does not fit the index.
        """
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"{self.label} takes tokens of shape (B, N, {self.dim}), got {tuple(x.shape)}")
        index = default_index(self.relation, x.shape[1], x.shape[1]) if index is None else index
        self.check_index(index)
        if index.shape[0] != x.shape[1]:
            raise ValueError(f"the index has {index.shape[0]} tokens and x has {x.shape[1]}")
        vectors = self.added(x, index)
        if self.strength is not None:
            vectors = vectors * self.strength.repeat_interleave(self.head_dim)
        return x + vectors.to(x.dtype)

    def forward(self, index: Index, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms()


class AbsoluteEncoding(InputEncoding):
    """An input encoding that adds a vector for each position, whatever the tokens are."""

    @abstractmethod
    def positions(self, index: SequenceIndex | GridIndex) -> Tensor:
        """The vectors to be added to the tokens of an index, (B or 1, N, H D)."""

    def added(self, x: Tensor, index: SequenceIndex | GridIndex) -> Tensor:
        return self.positions(index)


def default_index(relation: Relation, n: int, m: int) -> Any:
    """The index that a relation itself gives for N queries and M keys.

    Raises:
        ValueError: N does not fit the grid or volume, or the relation needs input of its own.
    """
    if isinstance(relation, Sequence):
        return relation(n, m)
    if isinstance(relation, Lattice):
        index = relation()
        if index.shape != (n, m):
            raise ValueError(
                f"{relation!r} has {index.shape[0]} tokens, got {n} queries and {m} keys; "
                f"pass index={type(relation).__name__.lower()}({', '.join(relation.axes)})"
            )
        return index
    parameters = list(inspect.signature(type(relation).__call__).parameters.values())[1:]
    values = ", ".join(str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters)
    raise ValueError(
        f"{relation!r} needs an index that comes with the batch; pass index=relation({values}), "
        "of several relations in a mapping by their keys"
    )


def token_coordinates(index: SequenceIndex | GridIndex, device: torch.device) -> tuple[Tensor, int]:
    """The coordinates of tokens without prefix tokens, (B or 1, N - P, 1 or 2) int64, and P."""
    if isinstance(index, GridIndex):
        return index.coordinates(device).view(index.batch_heads[0], -1, 2), index.prefix_tokens
    queries, _ = index.positions(device)
    return queries[..., None], 0
