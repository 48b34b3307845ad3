"""PyG's GPSConv with an encoding of the relation between the nodes of a graph in its attention."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.attention.observe import in_backward
from relbias.plugins.binding import bind, bound
from relbias.plugins.pyg.graphs_of_call import GraphsOfCall, graphs_of_call
from relbias.plugins.torch.attention import RelativeMultiheadAttention

with extra("graph"):
    from torch_geometric.nn import GPSConv
    from torch_geometric.utils import is_sparse


class GraphMultiheadAttention(RelativeMultiheadAttention):
    """The nn.MultiheadAttention of a GPSConv, with an encoding of the relation between nodes at `self.encoding`."""

    host_class = nn.MultiheadAttention

    def index_of_call(self, tokens: int) -> Any:
        """The index of the graphs that the GPSConv around it is called with."""
        graphs = bound()
        if not isinstance(graphs, GraphsOfCall):
            raise ValueError(
                "the attention of a GPSConv is recomputed in the backward pass and its graphs are unknown; checkpoint "
                "the whole GPSConv, not its attention"
                if in_backward()
                else "the attention of a GPSConv was called by itself, where its graphs are unknown; call the GPSConv"
            )
        return graphs.index(self.encoding.relation)


class AttachedGPSConv(GPSConv):
    """A GPSConv that binds the graphs that it is called with for its attention."""

    host_class = GPSConv

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, **kwargs: Any) -> Tensor:
        """As in PyG.

        Args:
            x: (V, C).
            edge_index: (2, E) int64, not a SparseTensor.
            batch: (V,) int64, the graph of each node, not descending; None for one graph.
            **kwargs: of the local convolution. Relations are made from `edge_attr` and `pos` too, if they are given.

        Raises:
            ValueError: edge_index is sparse, or the graphs lack what a relation is made from.
        """
        if not isinstance(edge_index, Tensor) or is_sparse(edge_index):
            raise ValueError(
                f"a GPSConv with an encoding takes edge_index as a tensor (2, E), got a {_kind(edge_index)}; "
                "ToSparseTensor(remove_edge_index=False) keeps it"
            )
        graphs = graphs_of_call(len(x), edge_index, batch, kwargs.get("edge_attr"), kwargs.get("pos"))
        with bind(graphs):
            return super().forward(x, edge_index, batch, **kwargs)


def _kind(edge_index: Any) -> str:
    return f"tensor in {edge_index.layout}" if isinstance(edge_index, Tensor) else type(edge_index).__name__
