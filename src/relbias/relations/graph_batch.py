"""A batch of graphs, and relations that can be made from it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from relbias.relations.base import Index, Relation, as_integers, can_check_values, check_size
from relbias.relations.last_edges import last_edges
from relbias.relations.path_lengths import check_graphs, shortest_paths

PAIR_VALUES = ("hops", "last_edges", "walks", "resistance")
"""The names of values of pairs that relations read instead of making them."""


@dataclass(frozen=True)
class GraphBatch:
    """B graphs, their nodes and edges one after the other, as in a batch of PyG.

    What several relations need, such as the distances, is computed once, when it is first asked for.

    Args:
        edge_index: (2, E) int64, the nodes i and j of each edge, from 0 to V - 1. An undirected edge is given in both
            directions.
        num_nodes: V, of all graphs together.
        batch: (V,) int64, the graph of each node, not descending; None for one graph.
        num_graphs: B, needed where the last graphs have no nodes; else counted.
        edge_attr: (E,) or (E, F), what is known of the edges, or None.
        pos: (V, S), floating, where the nodes lie, or None.
        pairs: values of the pairs of nodes made beforehand, by name: "hops", from i to j, is (sum of n^2 over the
            graphs,) with the rows of each graph's matrix one after the other; see each relation's `of_graphs`.

    Raises:
        ValueError: shapes do not fit, or (on CPU, outside compile and export) an edge between two graphs, a node out of
            range, or more graphs than `num_graphs`.

    Example:
        >>> edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])  # a path of three nodes, an edge
        >>> graphs = GraphBatch(edges, num_nodes=5, batch=torch.tensor([0, 0, 0, 1, 1]))
        >>> graphs.sizes, graphs.distances[1]
        (tensor([3, 2]), tensor([[ 0,  1, -1],
                [ 1,  0, -1],
                [-1, -1, -1]], dtype=torch.int16))
    """

    edge_index: Tensor
    num_nodes: int
    batch: Tensor | None = None
    num_graphs: int | None = None
    edge_attr: Tensor | None = None
    pos: Tensor | None = None
    pairs: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_graphs(self.edge_index, self.num_nodes, self.batch)
        if self.num_graphs is not None:
            check_size("num_graphs", self.num_graphs, 0)
            last = self.batch[-1:] if self.batch is not None else self.edge_index.new_zeros(min(self.num_nodes, 1))
            if can_check_values(last) and bool((last >= self.num_graphs).any()):
                raise ValueError(f"num_graphs is {self.num_graphs}, and the batch has graph {int(last)}; count all")

    @cached_property
    def graph_of_nodes(self) -> Tensor:
        """(V,) int64, the graph of each node."""
        if self.batch is not None:
            return self.batch
        return torch.zeros(self.num_nodes, dtype=torch.int64, device=self.edge_index.device)

    @cached_property
    def sizes(self) -> Tensor:
        """(B,) int64, the number of nodes of each graph."""
        count = self.num_graphs
        if count is None:
            count = 1 if self.batch is None else (int(self.batch[-1]) + 1 if self.num_nodes else 0)
        return torch.bincount(self.graph_of_nodes, minlength=count)

    @cached_property
    def starts(self) -> Tensor:
        """(B,) int64, the first node of each graph."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def longest(self) -> int:
        """N, the number of nodes of the largest graph, to which the others are padded."""
        return int(self.sizes.max()) if len(self.sizes) else 0

    @cached_property
    def places(self) -> Tensor:
        """(V,) int64, the place of each node in its graph, from 0."""
        return torch.arange(self.num_nodes, device=self.edge_index.device) - self.starts[self.graph_of_nodes]

    @cached_property
    def padding(self) -> Tensor:
        """(B, N) bool, True where there is no node."""
        return torch.arange(self.longest, device=self.sizes.device) >= self.sizes[:, None]

    @cached_property
    def has_padding(self) -> bool:
        """Whether a graph has fewer nodes than the largest."""
        return self.num_nodes != len(self.sizes) * self.longest

    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """The graph of each edge, and the places of its nodes i and j there, (E,) int64 each."""
        sources, targets = self.edge_index
        return self.graph_of_nodes[sources], self.places[sources], self.places[targets]

    def padded(self, values: Tensor, fill: float) -> Tensor:
        """Values of pairs, graph after graph, as a matrix per graph.

        Args:
            values: (sum of n^2, ...).
            fill: what stands where there is no pair.

        Returns:
            (B, N, N, ...), in the dtype given.

        Raises:
            ValueError: there are other pairs than those of the graphs.
        """
        if not self.has_padding and len(values) == self.num_nodes * self.longest:
            return values.view(len(self.sizes), self.longest, self.longest, *values.shape[1:])
        there = ~self.padding
        pairs = there[:, :, None] & there[:, None, :]
        expected = int((self.sizes * self.sizes).sum())
        if len(values) != expected:
            raise ValueError(
                f"graphs of {self.sizes.tolist()[:8]} nodes have {expected} pairs in all, got {len(values)} values; "
                "values of pairs are the rows of each graph's matrix, (N N, ...), one after the other"
            )
        matrices = values.new_full((*pairs.shape, *values.shape[1:]), fill)
        return matrices.masked_scatter(pairs.view(*pairs.shape, *[1] * (values.ndim - 1)), values)

    def padded_nodes(self, values: Tensor, fill: float) -> Tensor:
        """Values of nodes, graph after graph, as a row per graph.

        Args:
            values: (V, ...).
            fill: what stands where there is no node.

        Returns:
            (B, N, ...), in the dtype given.
        """
        rows = values.new_full((*self.padding.shape, *values.shape[1:]), fill)
        return rows.index_put((self.graph_of_nodes, self.places), values)

    def adjacency(self, weights: Tensor | None = None) -> Tensor:
        """The weights of the edges as a matrix per graph: from i to j at (i, j), and 0 where there is no edge.

        The weights of several edges from i to j add up. An edge from a node to itself counts once, on the diagonal.

        Args:
            weights: (E,), floating; None for 1 each, in torch's default dtype.

        Returns:
            (B, N, N), in the dtype of the weights.

        Raises:
            ValueError: the weights have another shape or dtype.
        """
        if weights is None:
            weights = torch.ones(self.edge_index.shape[1], device=self.edge_index.device)
        elif weights.shape != self.edge_index.shape[1:] or not weights.dtype.is_floating_point:
            raise ValueError(
                f"the weights of edges have shape ({self.edge_index.shape[1]},) and are floating, "
                f"got {tuple(weights.shape)} {weights.dtype}"
            )
        size = self.longest
        return weights.new_zeros(len(self.sizes), size, size).index_put(self.edges(), weights, accumulate=True)

    @cached_property
    def degrees(self) -> tuple[Tensor, Tensor]:
        """How many edges lead to each node, and how many from it, (V,) int64 each; also those given several times."""
        sources, targets = self.edge_index
        return torch.bincount(targets, minlength=self.num_nodes), torch.bincount(sources, minlength=self.num_nodes)

    @cached_property
    def distances(self) -> Tensor:
        """(B, N, N) integers, in edges; -1 where there is no path or no node. Those in `pairs` where they are."""
        if "hops" in self.pairs:
            return self.padded(self.pairs["hops"], -1)
        return self._distances

    @cached_property
    def _distances(self) -> Tensor:
        distances = shortest_paths(self.edge_index, self.num_nodes, self.batch)
        if self.batch is None:
            distances = distances[None]
        # The last graphs may have no nodes, of which the batch says nothing.
        return torch.nn.functional.pad(distances, (0, 0, 0, 0, 0, len(self.sizes) - len(distances)), value=-1)

    @cached_property
    def last_edges(self) -> Tensor:
        """(B, N, N) int32, the number in `edge_index` of the last edge of a shortest path from i to j, else -1.

        Of several paths it is the one whose last edge comes first there, and so on backwards. Those in `pairs` where
        they are: "last_edges", (sum of n^2,), whose numbers count the edges of each graph.

        Raises:
            ValueError: (on CPU, outside compile and export) those in `pairs` do not lead to j.
        """
        if "last_edges" in self.pairs:
            numbers = as_integers("'last_edges'", self.pairs["last_edges"])
            return self._numbered(self.padded(numbers, -1).to(self.edge_index.device))
        chosen = last_edges(self.edges(), self.distances)
        # Distances made beforehand may have a limit, beyond which they do not tell the way.
        if "hops" in self.pairs and bool(((self.distances > 0) & (chosen < 0)).any()):
            chosen = last_edges(self.edges(), self._distances)
        return chosen

    def _numbered(self, chosen: Tensor) -> Tensor:
        """Numbers of edges in each graph as numbers in the batch."""
        graph, _, targets = self.edges()
        counts = torch.bincount(graph, minlength=len(self.sizes))
        starts = (counts.cumsum(0) - counts)[:, None, None]
        there = chosen >= 0
        if can_check_values(chosen) and bool((chosen >= counts[:, None, None]).any()):
            raise ValueError("'last_edges' has numbers of edges that are not there; make it again from these graphs")
        in_order = graph.argsort(stable=True)  # the edges of a graph need not stand together
        numbers = in_order[(chosen + starts).where(there, 0)] if len(graph) else chosen.long()
        if can_check_values(chosen):
            nodes = torch.arange(self.longest, device=chosen.device)
            if bool((there & (targets[numbers] != nodes)).any() if len(graph) else there.any()):
                raise ValueError("'last_edges' has edges that do not lead to j; make it again from these graphs")
        return numbers.where(there, -1).int()


class GraphRelation(Relation):
    """A relation that can be made from graphs."""

    @abstractmethod
    def of_graphs(self, graphs: GraphBatch) -> Index:
        """The index of a batch of graphs, of N nodes each with padding, and the relation's prefix tokens before them.

        Args:
            graphs: the batch.

        Raises:
            ValueError: it lacks what the relation is made from.
        """
