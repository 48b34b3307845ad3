"""Random walks and resistances between the nodes of graphs, as relations."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relbias.relations.base import check_size
from relbias.relations.features import Features, FeaturesIndex
from relbias.relations.graph_batch import GraphBatch, GraphRelation
from relbias.relations.graph_features import random_walks, resistance_distances


@dataclass(frozen=True)
class _GraphFeatures(Features, GraphRelation):
    """Features of pairs of nodes, and one more that is 1 for pairs with a prefix token, if there are any."""

    num_features: int = field(init=False, repr=False)
    prefix_tokens = 0

    def __post_init__(self) -> None:
        check_size(f"{type(self).__name__}' prefix_tokens", self.prefix_tokens, 0)
        object.__setattr__(self, "num_features", self.num_given + min(self.prefix_tokens, 1))

    @property
    @abstractmethod
    def num_given(self) -> int:
        """How many features a pair of nodes has."""

    def __call__(self, values: Tensor) -> FeaturesIndex:
        """The index of one call.

        Args:
            values: (N, M, F) or (B, N, M, F), floating, finite. With prefix tokens, of the nodes only.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a number that is not finite.
        """
        index = Features(self.num_given)(values)
        p = self.prefix_tokens
        if not p:
            return index
        features = torch.nn.functional.pad(index.values, (0, 1, p, 0, p, 0))
        features[:, :p, :, -1] = 1.0
        features[:, :, :p, -1] = 1.0
        return FeaturesIndex(features)

    def _precomputed(self, graphs: GraphBatch, name: str) -> Tensor | None:
        """The pairs' values of that name, (B, N, N, F), or None."""
        if name not in graphs.pairs:
            return None
        values = graphs.pairs[name]
        if values.ndim != 2 or values.shape[1] != self.num_given:
            raise ValueError(
                f"{self!r} takes {self.num_given} values for each pair, got {name!r} of shape {tuple(values.shape)}"
            )
        return graphs.padded(values, 0.0)


@dataclass(frozen=True)
class RandomWalks(_GraphFeatures):
    """The probabilities that a random walk from i stands at j after 0, 1, ... K - 1 steps, see `random_walks`.

    With prefix tokens there is one more feature, 1 for pairs with a prefix token and else 0, so that a network can tell
    them from pairs without a walk.

    Args:
        num_steps: K, counting step 0.
        prefix_tokens: P, the number of tokens before the nodes. The index covers them; the values given do not.

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> graphs = GraphBatch(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)  # a path
        >>> RandomWalks(num_steps=3).of_graphs(graphs).features()[0, 0]
        tensor([[1.0000, 0.0000, 0.5000],
                [0.0000, 1.0000, 0.0000],
                [0.0000, 0.0000, 0.5000]])
    """

    num_steps: int
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        check_size("RandomWalks' num_steps", self.num_steps, 1)
        super().__post_init__()

    @property
    def num_given(self) -> int:
        return self.num_steps

    def of_graphs(self, graphs: GraphBatch) -> FeaturesIndex:
        """The index of a batch of graphs.

        From `graphs.pairs["walks"]`, (sum of n^2, K), where it is there, else from the edges. A walk takes one of
        several edges between two nodes as often as they are many, and may follow an edge from a node to itself.

        Args:
            graphs: the batch.

        Raises:
            ValueError: the walks given have another number of steps.
        """
        walks = self._precomputed(graphs, "walks")
        return self(random_walks(graphs.adjacency(), self.num_steps) if walks is None else walks)


@dataclass(frozen=True)
class Resistances(_GraphFeatures):
    """The resistance between two nodes, and 1 where there is no path, see `resistance_distances`.

    With prefix tokens there is one more feature, 1 for pairs with a prefix token and else 0.

    Args:
        prefix_tokens: P, the number of tokens before the nodes. The index covers them; the values given do not.

    Raises:
        ValueError: `prefix_tokens` is negative or not an integer.

    Example:
        >>> graphs = GraphBatch(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)  # a path
        >>> Resistances().of_graphs(graphs).features()[0, ..., 0]
        tensor([[0., 1., 2.],
                [1., 0., 1.],
                [2., 1., 0.]])
    """

    prefix_tokens: int = 0

    @property
    def num_given(self) -> int:
        return 2

    def of_graphs(self, graphs: GraphBatch) -> FeaturesIndex:
        """The index of a batch of undirected graphs.

        From `graphs.pairs["resistance"]`, (sum of n^2, 2), where it is there, else from the edges. Several edges
        between two nodes lie in parallel, and edges from a node to itself change nothing.

        Args:
            graphs: the batch.

        Raises:
            ValueError: (on CPU, outside compile and export) an edge lacks its other direction.
        """
        given = self._precomputed(graphs, "resistance")
        return self(resistance_distances(graphs.adjacency()) if given is None else given)
