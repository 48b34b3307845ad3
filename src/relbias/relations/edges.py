"""The types of a graph's edges as codes of pairs of nodes."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import as_integers, can_check_values, check_size


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
            two edges from one node to another, of which one code cannot tell: that takes `EdgeSets`.

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
    places = edge_index[0] * num_nodes + edge_index[1]
    if can_check_values(places) and len(places.unique()) < len(places):
        raise ValueError(
            "two edges join the same nodes, and a code of Pairs holds one type; remove one or use EdgeSets"
        )
    codes = torch.full((num_nodes * num_nodes,), num_types, dtype=torch.int64, device=types.device)
    codes = codes.scatter(0, places, types).view(num_nodes, num_nodes)
    itself = torch.eye(num_nodes, dtype=torch.bool, device=types.device)
    codes = codes.masked_fill(itself, num_types + 1)
    p = prefix_tokens
    return torch.nn.functional.pad(codes, (p, 0, p, 0), value=num_types + 2)


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
