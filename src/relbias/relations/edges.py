"""The types of a graph's edges as codes of pairs of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from relbias.relations.base import as_integers, can_check_values, check_size
from relbias.relations.edge_data import edge_categories
from relbias.relations.graph_batch import GraphBatch, GraphRelation
from relbias.relations.pairs import Pairs, PairsIndex


@dataclass(frozen=True)
class EdgeTypes(Pairs, GraphRelation):
    """The type of the edge from i to j, with the codes of `edge_types`.

    The codes are the types 0 ... T - 1, then T for no edge, T + 1 for a node and itself, and T + 2 for any pair with a
    prefix token (a graph token).

    Args:
        num_types: T.
        prefix_tokens: P, the number of tokens before the nodes. The index covers them; the codes given do not.

    Raises:
        ValueError: a size is too small or not an integer.

    Example:
        >>> edges, types = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, 2])
        >>> graphs = GraphBatch(edges, num_nodes=3, edge_attr=types)
        >>> EdgeTypes(num_types=4).of_graphs(graphs).codes()[0, 0]
        tensor([[5, 2, 4],
                [2, 5, 4],
                [4, 4, 5]])
    """

    num_codes: int = field(init=False, repr=False)
    num_types: int
    prefix_tokens: int = 0

    def __post_init__(self) -> None:
        check_size("EdgeTypes' num_types", self.num_types, 1)
        check_size("EdgeTypes' prefix_tokens", self.prefix_tokens, 0)
        object.__setattr__(self, "num_codes", self.num_types + 3)

    def __call__(self, codes: Tensor) -> PairsIndex:
        """The index of one call.

        Args:
            codes: (N, M), (B, N, M) or (B, H, N, M) integers in [0, T + 3). With prefix tokens, of the nodes only.

        Raises:
            ValueError: another shape or dtype, or (on CPU, outside compile and export) a code out of range.
        """
        index, p = super().__call__(codes), self.prefix_tokens
        return PairsIndex(torch.nn.functional.pad(index.values, (p, 0, p, 0), value=self.num_types + 2), self.num_codes)

    def of_graphs(self, graphs: GraphBatch) -> PairsIndex:
        """The index of a batch of graphs.

        Args:
            graphs: the batch. `edge_attr`, or its first column, holds the types, whole numbers in [0, T) in any dtype;
                without it all edges have type 0, which takes T = 1.

        Raises:
            ValueError: no edge_attr for several types, or (on CPU, outside compile and export) a type out of range, or
                edges of several types from one node to another, of which one code cannot tell.
        """
        num_edges = graphs.edge_index.shape[1]
        types = edge_categories(graphs.edge_attr, (self.num_types,), num_edges)[:, 0].to(graphs.edge_index.device)
        return self(_codes(graphs.edges(), types, (len(graphs.sizes), graphs.longest), self.num_types))


def edge_types(edge_index: Tensor, types: Tensor, num_nodes: int, num_types: int, prefix_tokens: int = 0) -> Tensor:
    """The type of the edge from i to j for each pair of nodes, as codes of `Pairs(num_types + 3)`.

    The codes are the types 0 ... T - 1, then T for no edge, T + 1 for a node and itself, whether or not it has an edge
    to itself, and T + 2 for any pair with a prefix token (a graph token). Without prefix tokens the last is unused.

    Args:
        edge_index: (2, E) integers, the nodes i and j of each edge. An undirected edge is given in both directions.
        types: (E,) integers in [0, T).
        num_nodes: N, without prefix tokens.
        num_types: T.
        prefix_tokens: P, the number of tokens before the nodes.

    Returns:
        (N + P, N + P) int64.

    Raises:
        ValueError: another shape or dtype, or (on CPU, outside compile and export) a node or a type out of range, or
            edges of several types from one node to another, of which one code cannot tell: that takes `EdgeSets`.

    Example:
        >>> edge_types(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, 2]), num_nodes=3, num_types=4)
        tensor([[5, 2, 4],
                [2, 5, 4],
                [4, 4, 5]])
    """
    check_size("edge_types' num_nodes", num_nodes, 0)
    check_size("edge_types' num_types", num_types, 1)
    check_size("edge_types' prefix_tokens", prefix_tokens, 0)
    edge_index, types = check_edges(edge_index, types, num_nodes, num_types)
    graph = torch.zeros_like(types)
    codes = _codes((graph, *edge_index.unbind()), types, (1, num_nodes), num_types)[0]
    p = prefix_tokens
    return torch.nn.functional.pad(codes, (p, 0, p, 0), value=num_types + 2)


def _codes(edges: tuple[Tensor, ...], types: Tensor, sizes: tuple[int, int], num_types: int) -> Tensor:
    """(B, N, N) int64 from the graph, the nodes i and j, and the type of each edge, and (B, N)."""
    count, n = sizes
    graph, first, second = edges
    codes = torch.full((count, n, n), num_types, dtype=torch.int64, device=types.device).index_put(edges, types)
    if can_check_values(codes) and bool(((codes[edges] != types) & (first != second)).any()):
        wrong = int(((codes[edges] != types) & (first != second)).nonzero()[0])
        both = f"{int(types[wrong])} and {int(codes[edges][wrong])}"
        raise ValueError(
            f"two edges of other types, {both}, join node {int(first[wrong])} to {int(second[wrong])} in graph "
            f"{int(graph[wrong])}, and a code holds one; remove one or use EdgeSets"
        )
    itself = torch.eye(n, dtype=torch.bool, device=types.device)
    return codes.masked_fill(itself, num_types + 1)


def check_edges(edge_index: Tensor, types: Tensor, num_nodes: int, num_types: int) -> tuple[Tensor, Tensor]:
    """A graph's edges, (2, E) and (E,), as int64, or a ValueError that says what is wrong with them."""
    edge_index, types = as_integers("edge_index", edge_index), as_integers("the types of edges", types)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or types.shape != edge_index.shape[1:]:
        raise ValueError(
            f"edge_index has shape (2, E) and the types of edges (E,), got {tuple(edge_index.shape)} "
            f"and {tuple(types.shape)}"
        )
    for name, values, limit in (("nodes", edge_index, num_nodes), ("types", types, num_types)):
        if can_check_values(values) and values.numel() and (int(values.min()) < 0 or int(values.max()) >= limit):
            raise ValueError(
                f"the edges have {name} from {int(values.min())} to {int(values.max())}, expected 0 to {limit - 1}"
            )
    return edge_index.long(), types.long()
