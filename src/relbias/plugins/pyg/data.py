"""PyG's Data and Batch as a GraphBatch, and distances of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import relbias.relations
from relbias._extras import extra
from relbias._nearest import nearest
from relbias.relations import PAIR_VALUES, GraphBatch
from relbias.relations.base import can_check_values

with extra("graph"):
    from torch_geometric import EdgeIndex, Index
    from torch_geometric.data import Batch, Data


def graph_batch(
    data: Data, *, edge_attr: str = "edge_attr", pos: str = "pos", pairs: Mapping[str, str] | None = None
) -> GraphBatch:
    """The graphs of a Data or a Batch, for relations that are made from graphs.

    Values of pairs that transforms such as :class:`AddShortestPaths` stored are taken from there; a relation computes
    from the edges what is not stored.

    Args:
        data: a Data, or a Batch such as a DataLoader of PyG gives.
        edge_attr: the name of the attribute with what is known of the edges, (E,) or (E, F); it may be absent.
        pos: the name of the attribute with the places of the nodes, (V, S); it may be absent.
        pairs: under which names the values of pairs "hops", "last_edges", "walks" and "resistance" are stored, where
            those are not their names.

    Raises:
        ValueError: it is something else, such as a HeteroData or a list; it has no `edge_index`; an attribute that was
            named is absent or does not fit the graphs; or (on CPU, outside compile and export) x, the attributes of
            edges or the places of nodes have a NaN, or the edges were changed after the hops were stored.

    Example:
        >>> from torch_geometric.data import Batch, Data
        >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> alone = Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=1)
        >>> graphs = graph_batch(Batch.from_data_list([path, alone]))
        >>> graphs.sizes, graphs.distances.shape
        (tensor([3, 1]), torch.Size([2, 3, 3]))
    """
    bare = edges_of(data)
    stored = {name: name for name in PAIR_VALUES}
    for name in pairs or {}:
        if name not in stored:
            raise ValueError(f"there are no values of pairs {name!r}; {nearest(name, list(stored))}")
    stored |= pairs or {}
    graphs = replace(
        bare,
        edge_attr=_attribute(data, edge_attr, "edge_attr"),
        pos=_attribute(data, pos, "pos"),
        pairs={name: data[key] for name, key in stored.items() if _attribute(data, key, name) is not None},
    )
    for name, values, expected in (
        ("x", data.x, graphs.num_nodes),
        (pos, graphs.pos, graphs.num_nodes),
        (edge_attr, graphs.edge_attr, graphs.edge_index.shape[1]),
    ):
        _check_values(name, values, expected)
    _check_pairs(graphs, stored)
    return graphs


def shortest_paths(data: Data, *, max_distance: int | None = None, directed: bool = True) -> Tensor:
    """The number of edges on a shortest path between all nodes of a graph, or of each graph of a batch, for `Hops`.

    Args:
        data: a Data or a Batch. What it may have stored of its distances is left aside.
        max_distance: what is farther has the distance max_distance + 1; None for no limit.
        directed: whether a path follows each edge from its first node to its second only; otherwise both ways. PyG
            gives undirected edges in both directions, so there the two are the same.

    Returns:
        Of a Data (N, N), of a Batch (B, N, N) where N is the size of the largest graph: at (i, j) the distance from i
        to j, -1 where there is no path or no node. int8 for a max_distance of at most 126, else int16.

    Raises:
        ValueError: as in :func:`graph_batch`.

    Example:
        >>> from torch_geometric.data import Data
        >>> shortest_paths(Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3))
        tensor([[0, 1, 2],
                [1, 0, 1],
                [2, 1, 0]], dtype=torch.int16)
    """
    graphs = edges_of(data)
    found = relbias.relations.shortest_paths(
        graphs.edge_index, graphs.num_nodes, graphs.batch, max_distance=max_distance, directed=directed
    )
    if graphs.num_graphs is None:
        return found
    return torch.nn.functional.pad(found, (0, 0, 0, 0, 0, graphs.num_graphs - len(found)), value=-1)  # empty last ones


def edges_of(data: Data, taker: str | None = None) -> GraphBatch:
    """The graphs with their edges alone.

    Args:
        data: a Data or a Batch.
        taker: as in `check_graph`.
    """
    check_graph(data, taker)
    nodes = data.num_nodes
    if nodes is None:
        raise ValueError("the graph does not say how many nodes it has; set its num_nodes")
    batch = plain_index(data.batch) if is_batched(data) else None
    return GraphBatch(plain_index(data.edge_index), nodes, batch, data.num_graphs if isinstance(data, Batch) else None)


def check_graph(data: Any, taker: str | None = None) -> None:
    """Raise ValueError unless this is a graph of PyG that has its edges in `edge_index`.

    Args:
        data: anything.
        taker: the name of what takes a single graph only; by default a Batch will do.
    """
    wanted = f"{taker} takes a Data" if taker else "a Data or a Batch was expected"
    kind = type(data).__name__
    if not isinstance(data, Data):
        advice = "; turn it into a Data by to_homogeneous()" if kind.startswith("HeteroData") else ""
        advice = "; make a Batch of it by Batch.from_data_list" if isinstance(data, list | tuple) else advice
        raise ValueError(f"{wanted}, got a {kind}{'; give its graphs one by one' if taker and advice else advice}")
    if taker and is_batched(data):
        raise ValueError(f"{wanted}, got a {kind} of several; apply it to each graph, as a data set's (pre_)transform")
    if not isinstance(data.edge_index, Tensor):
        sparse = [key for key in ("adj_t", "adj") if key in data]
        raise ValueError(
            f"the graph has no edge_index{f' but a sparse {sparse[0]}' if sparse else ''}; relations are made from "
            "edge_index, which ToSparseTensor(remove_edge_index=False) keeps"
        )
    if is_batched(data) and data.batch is None:
        raise ValueError(f"the {kind} has no vector `batch` that says to which graph a node belongs")


def is_batched(data: Data) -> bool:
    """Whether this may be several graphs."""
    return isinstance(data, Batch) or data.batch is not None


def plain_index(index: Any) -> Tensor:
    """PyG's kinds of tensors of indices as plain ones.

    Args:
        index: a tensor, an EdgeIndex or an Index.
    """
    return index.as_tensor() if isinstance(index, EdgeIndex | Index) else index


def _attribute(data: Data, key: str, usual: str) -> Tensor | None:
    """An attribute, or None if it has its usual name and is absent."""
    value = data.get(key) if key in data else None
    if value is None and key != usual:
        raise ValueError(f"the graph has no attribute {key!r}; it has {', '.join(data.keys())}")
    if value is not None and not isinstance(value, Tensor):
        raise ValueError(f"the graph's attribute {key!r} must be a tensor, got a {type(value).__name__}")
    return value


def _check_values(name: str, values: Any, expected: int) -> None:
    if not isinstance(values, Tensor):
        return
    if values.ndim == 0 or len(values) != expected:
        raise ValueError(f"{name} must have a row for each of {expected}, got shape {tuple(values.shape)}")
    if can_check_values(values) and values.layout is torch.strided and bool(values.isnan().any()):
        rows = int(values.isnan().reshape(expected, -1).any(dim=1).sum())
        raise ValueError(f"{name} has NaN in {rows} of {expected} rows; fill them, or leave those graphs out")


def _check_pairs(graphs: GraphBatch, names: Mapping[str, str]) -> None:
    """Raise ValueError where stored values of pairs are not of these graphs, or the hops not of these edges."""
    if not graphs.pairs or not can_check_values(graphs.edge_index):
        return
    squares = graphs.sizes * graphs.sizes
    late = "put the transform that stores them behind all that change nodes or edges"
    for name, values in graphs.pairs.items():
        if values.ndim == 0 or len(values) != int(squares.sum()):
            raise ValueError(
                f"{names[name]} has shape {tuple(values.shape)}, the graphs have {int(squares.sum())} pairs of nodes; "
                + late
            )
    if "hops" in graphs.pairs:
        graph, i, j = graphs.edges()
        hops = graphs.pairs["hops"][(squares.cumsum(0) - squares)[graph] + i * graphs.sizes[graph] + j]
        if not torch.equal(hops.long(), (i != j).long()):
            raise ValueError(f"{names['hops']} is not 1 for all edges, so it is not of these edges; {late}")
