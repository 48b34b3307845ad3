"""Graphs of a part of a data set, and the range of what is known of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset as Samples

from relbias._extras import extra
from relbias.data.targets import gather
from relbias.plugins.pyg.buckets import graph_sizes

with extra("graph"):
    from torch_geometric.data import Batch, Data


def extremes(sources: Sequence[Any]) -> Batch:
    """One graph of two nodes and two edges that has the least and the greatest value of each feature of all graphs.

    A network that takes it has a category for every node and edge of the data, whatever batch is tried.

    Args:
        sources: data sets of graphs, which have been checked.

    Returns:
        With x (2, ...), edge_index, and edge_attr (2, ...) and pos (2, ...) where the graphs have them.

    Example:
        >>> path = Data(x=torch.tensor([[3], [1], [7]]), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> extremes([[path]]).x.tolist()
        [[1], [7]]
    """
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]))
    for name in ("x", "edge_attr", "pos"):
        found = [values for values in (gather(source, name) for source in sources) if values is not None]
        if found and all(len(values) for values, _ in found):
            graph[name] = torch.stack(
                (
                    torch.stack([values.amin(dim=0) for values, _ in found]).amin(dim=0),
                    torch.stack([values.amax(dim=0) for values, _ in found]).amax(dim=0),
                )
            )
    if graph.x is None:
        graph.x = torch.zeros(2, 1, dtype=torch.int64)
    return Batch.from_data_list([graph])


class Graphs(Samples):
    """Some of the graphs of a data set, all of them with x.

    Args:
        graphs: the data set.
        positions: those that belong to this part.
        mask: (V,) bool, the nodes of its graph that do; it becomes the attribute `mask` of the graph. None for all.
    """

    def __init__(self, graphs: Any, positions: Sequence[int], mask: Tensor | None = None) -> None:
        self.graphs = graphs
        self.positions = positions
        self.mask = mask

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int) -> Data:
        graph = self.graphs[self.positions[index]]
        if graph.x is None or self.mask is not None:
            graph = graph.clone() if isinstance(self.graphs, list) else graph  # what is kept stays as it is
        if graph.x is None:
            graph.x = torch.zeros(graph.num_nodes, 1, dtype=torch.int64)
        if self.mask is not None:
            graph.mask = self.mask
        return graph

    def sizes(self) -> list[int]:
        """The number of nodes of each graph."""
        every = graph_sizes(self.graphs)
        return [every[position] for position in self.positions]

    def targets(self) -> Tensor:
        """The targets y of this part, (R,) or (R, T)."""
        y, rows = gather(self.graphs, "y")  # ty: ignore[not-iterable]
        if self.mask is not None:
            return y[self.mask]
        if len(self.positions) == len(self.graphs):
            return y
        each = y.split(rows.tolist())
        return torch.cat([each[position] for position in self.positions])
