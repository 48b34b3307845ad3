"""Transforms of PyG that store values of the pairs of a graph's nodes, and degrees."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

import relbias.relations
from relbias._extras import extra
from relbias.plugins.pyg.data import edges_of
from relbias.relations import GraphBatch
from relbias.relations.base import check_size

with extra("graph"):
    from torch_geometric.data import Data
    from torch_geometric.data.datapipes import functional_transform
    from torch_geometric.transforms import BaseTransform

_TAKEN = ("x", "y", "pos", "edge_attr", "edge_weight", "edge_type", "node_type", "time", "face", "ptr", "adj", "adj_t")


class GraphTransform(BaseTransform):
    """A transform that adds attributes to a single graph, and is shown with its arguments.

    PyG compares how a `pre_transform` is shown with that of the processed files, and warns where they differ.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class PairTransform(GraphTransform):
    """A transform that stores values of the pairs of nodes.

    They are stored flat, the rows of the graph's matrix one after the other, (N N,) or (N N, F), so that PyG puts
    graphs of different sizes into a batch, and takes them out of it, without knowing of them.
    """

    attr_name: str

    def forward(self, data: Data) -> Data:
        """The graph with the attribute.

        Args:
            data: a single graph.

        Raises:
            ValueError: it is a Batch, a HeteroData or no graph of PyG, or it has no `edge_index`.
        """
        data[self.attr_name] = self.matrix(edges_of(data, type(self).__name__)).flatten(0, 1)
        return data

    @abstractmethod
    def matrix(self, graph: GraphBatch) -> Tensor:
        """(N, N, ...), what is stored."""


@functional_transform("add_shortest_paths")
class AddShortestPaths(PairTransform):
    """Stores the number of edges on a shortest path between all nodes (functional name: `add_shortest_paths`).

    Stored values of pairs are those of the graph at this place: put the transform behind all that change nodes or
    edges, such as `ToUndirected` or `AddSelfLoops`, also those of a data set's `transform` behind this as its
    `pre_transform`. In a graph with N N edges, or one node, PyG takes them for attributes of edges, or of nodes, and
    such transforms change them.

    Args:
        max_distance: what is farther is stored as max_distance + 1, in int8 if it is at most 126; None for no limit.
            `Hops(n)` needs a limit of at least n, or none.
        attr_name: the name of the attribute, (N N,) integers, -1 where there is no path.
        directed: whether a path follows each edge from its first node to its second only; otherwise both ways.

    Raises:
        ValueError: an argument does not suit.

    Example:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> AddShortestPaths(max_distance=20)(data).hops
        tensor([0, 1, 2, 1, 0, 1, 2, 1, 0], dtype=torch.int8)
    """

    def __init__(self, max_distance: int | None = None, attr_name: str = "hops", directed: bool = True) -> None:
        if max_distance is not None:
            check_size("AddShortestPaths' max_distance", max_distance, 1)
        self.max_distance = max_distance
        self.attr_name = as_name(attr_name)
        self.directed = directed

    def matrix(self, graph: GraphBatch) -> Tensor:
        """(N, N) int8 or int16."""
        return relbias.relations.shortest_paths(
            graph.edge_index, graph.num_nodes, max_distance=self.max_distance, directed=self.directed
        )


@functional_transform("add_path_edges")
class AddPathEdges(PairTransform):
    """Stores the last edge of a shortest path between all nodes, for `EdgePaths` (functional name: `add_path_edges`).

    Of several paths it is the one whose last edge comes first in `edge_index`, and so on backwards. Of where to put it,
    :class:`AddShortestPaths`; a transform that changes the order of edges is one that must come before.

    Args:
        attr_name: the name of the attribute, (N N,) int32, the number of the edge in `edge_index`, -1 where there is
            none.

    Raises:
        ValueError: the name does not suit.

    Example:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> AddPathEdges()(data).last_edges[:3]  # from node 0
        tensor([-1,  0,  2], dtype=torch.int32)
    """

    def __init__(self, attr_name: str = "last_edges") -> None:
        self.attr_name = as_name(attr_name)

    def matrix(self, graph: GraphBatch) -> Tensor:
        """(N, N) int32."""
        return graph.last_edges[0]


@functional_transform("add_random_walks")
class AddRandomWalks(PairTransform):
    """Stores the probabilities that a random walk from i stands at j (functional name: `add_random_walks`).

    See `relations.random_walks`; of where to put it, :class:`AddShortestPaths`.

    Args:
        num_steps: K, counting step 0, where it stands at i.
        attr_name: the name of the attribute, (N N, K) float32.

    Raises:
        ValueError: an argument does not suit.

    Example:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> AddRandomWalks(num_steps=3)(data).walks[:3, 2]  # from node 0, after two steps
        tensor([0.5000, 0.0000, 0.5000])
    """

    def __init__(self, num_steps: int, attr_name: str = "walks") -> None:
        check_size("AddRandomWalks' num_steps", num_steps, 1)
        self.num_steps = num_steps
        self.attr_name = as_name(attr_name)

    def matrix(self, graph: GraphBatch) -> Tensor:
        """(N, N, K) float32."""
        return relbias.relations.random_walks(graph.adjacency()[0], self.num_steps)


@functional_transform("add_resistances")
class AddResistances(PairTransform):
    """Stores the resistance between all nodes if every edge is a resistor (functional name: `add_resistances`).

    See `relations.resistance_distances`; of where to put it, :class:`AddShortestPaths`. The graph must be undirected.

    Args:
        attr_name: the name of the attribute, (N N, 2) float32: the resistance, and 1 where there is no path.

    Raises:
        ValueError: the name does not suit.

    Example:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> AddResistances()(data).resistance[:3, 0].round(decimals=3)
        tensor([0., 1., 2.])
    """

    def __init__(self, attr_name: str = "resistance") -> None:
        self.attr_name = as_name(attr_name)

    def matrix(self, graph: GraphBatch) -> Tensor:
        """(N, N, 2) float32."""
        return relbias.relations.resistance_distances(graph.adjacency()[0])


@functional_transform("add_degrees")
class AddDegrees(GraphTransform):
    """Stores the number of edges into and out of each node (functional name: `add_degrees`).

    Args:
        in_name: the name of the attribute, (N,) int64, of the edges that end in a node.
        out_name: the name of the attribute, (N,) int64, of the edges that start from a node.

    Raises:
        ValueError: a name does not suit.

    Example:
        >>> import torch
        >>> data = AddDegrees()(Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3))
        >>> data.in_degree, data.out_degree
        (tensor([0, 1, 1]), tensor([2, 0, 0]))
    """

    def __init__(self, in_name: str = "in_degree", out_name: str = "out_degree") -> None:
        self.in_name = as_name(in_name)
        self.out_name = as_name(out_name)

    def forward(self, data: Data) -> Data:
        """The graph with both attributes.

        Args:
            data: a single graph.

        Raises:
            ValueError: it is a Batch, a HeteroData or no graph of PyG, or it has no `edge_index`.
        """
        data[self.in_name], data[self.out_name] = edges_of(data, type(self).__name__).degrees
        return data


def as_name(name: Any) -> str:
    """The name of an attribute that PyG treats as nothing but rows, or a ValueError."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"the name of an attribute is an identifier, got {name!r}")
    special = [word for word in ("index", "batch", "node") if word in name]
    if special or name in _TAKEN:
        why = f"gives names with {special[0]!r} a meaning" if special else "uses it for something else"
        raise ValueError(f"PyG {why}, so {name!r} cannot be the name of the attribute; choose another")
    return name
