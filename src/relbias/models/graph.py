"""A graph transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relbias._nearest import nearest
from relbias.encodings import Encoding, EncodingSpec, create_encoding
from relbias.models.block import TransformerBlock
from relbias.models.graph_inputs import NodeEmbedding, as_categories, as_features, as_types
from relbias.models.graph_relations import choose_relation, graph_relations, reads_edges, relation_of
from relbias.relations import PAIR_VALUES, GraphBatch
from relbias.relations.base import check_size

READOUTS = ("token", "mean", "sum", "nodes")


class GraphTransformer(nn.Module):
    """A transformer over the nodes of graphs, each of which attends to all nodes of its graph.

    The structure of a graph is in the relations between its nodes. An encoding given as one name is over the hops
    between two nodes; in a mapping the keys choose the relations:

    - hops: `Hops`, the edges on a shortest path (table, grpe and others with a table);
    - edges: `EdgePaths`, the edges on that path (graphormer_edges);
    - edge_types: `EdgeTypes`, the type of the edge between two nodes (table, grpe), the first column of edge_attr;
    - walks: `RandomWalks`, the probabilities of random walks (feature_mlp);
    - resistance: `Resistances` (feature_mlp);
    - distances: `Distances` in space, of pos (gaussian_3d).

    {"hops": "table", "edges": "graphormer_edges"} with `max_degree` and `shared` is Graphormer
    (https://arxiv.org/abs/2106.05234).

    Args:
        encoding: a name, a mapping with the keys above, a callable or a built encoding; see `create_encoding`. "none"
            leaves the structure out.
        num_outputs: how many numbers the model gives for each graph, or for each node.
        node_types: how many categories x has, from 0; a list with one number for each column of x, whose embeddings
            are summed.
        node_features: how many real numbers a node has, where x is not of categories. Without both, all nodes start
            alike and x is None.
        edge_types: how many categories edge_attr has, as `node_types`. Without it and `edge_features` all edges are of
            one kind.
        edge_features: how many real numbers an edge has, where edge_attr is not of categories.
        dim: the size of a token.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of the nodes' tokens and of each branch's
            output.
        norm: "pre", with a norm after the last block, or "post"; see `TransformerBlock`.
        readout: what the outputs are made from: a graph "token" that attends with the nodes, the "mean" of the nodes,
            their "sum" divided by the root of `dim`, or "nodes" for outputs of each node.
        max_degree: the largest in- and out-degree with an embedding of its own, added to a node's token; None for no
            degrees.
        max_hops: the largest distance with a code of its own, in edges; see `Hops`. All pairs with the graph token
            share one code.
        path_edges: how many edges of a shortest path count, its first; see `EdgePaths`.
        walk_steps: how many steps of a random walk count, with step 0; see `RandomWalks`.
        shared: whether all blocks have one encoding, as in Graphormer, instead of one each.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: an unknown encoding, relation or option (the message names the nearest), an encoding that is applied
            at the input or is not over graphs, or sizes that do not fit.

    Example:
        >>> model = GraphTransformer("table", num_outputs=1, node_types=28, dim=32, depth=2, num_heads=4)
        >>> x = torch.tensor([0, 5, 0, 7, 7])
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
        >>> model(x, edge_index, batch=torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding = "table",
        *,
        num_outputs: int,
        node_types: int | Sequence[int] | None = None,
        node_features: int | None = None,
        edge_types: int | Sequence[int] | None = None,
        edge_features: int | None = None,
        dim: int = 64,
        depth: int = 5,
        num_heads: int = 8,
        mlp_ratio: float = 2.0,
        dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        readout: Literal["token", "mean", "sum", "nodes"] = "token",
        max_degree: int | None = None,
        max_hops: int = 20,
        path_edges: int = 5,
        walk_steps: int = 16,
        shared: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("num_outputs", num_outputs), ("dim", dim), ("depth", depth), ("num_heads", num_heads)):
            check_size(name, size, 1)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        if readout not in READOUTS:
            raise ValueError(f"readout is one of {', '.join(READOUTS)}, got {readout!r}")
        self.readout = readout
        self.edge_types, self.edge_features = as_types(edge_types, "edge_types"), edge_features
        if edge_types is not None and edge_features is not None:
            raise ValueError("give edge_types, for categories, or edge_features, for real numbers, and not both")
        like: Any = {"device": device, "dtype": dtype}
        tokens = 1 if readout == "token" else 0
        relations = graph_relations(
            max_hops=max_hops,
            path_edges=path_edges,
            walk_steps=walk_steps,
            edge_types=self.edge_types,
            edge_features=edge_features,
            prefix_tokens=tokens,
        )
        relation = choose_relation(encoding, relations)
        if shared and not isinstance(encoding, Encoding):
            encoding = create_encoding(encoding, num_heads, dim // num_heads, relation).to(**like)
            encoding.drop_paper_scale()
            relation = None
        self.nodes = NodeEmbedding(dim, node_types, node_features, max_degree, **like)
        self.token = nn.Parameter(torch.empty(dim, **like)) if tokens else None
        self.dropout = nn.Dropout(dropout)
        options: Any = {"mlp_ratio": mlp_ratio, "dropout": dropout, "norm": norm, **like}
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, encoding, relation, **options) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, **like) if norm == "pre" else None
        self.head = nn.Linear(dim, num_outputs, **like)
        self.relation = relation_of(self.blocks[0].attention.encoding, tokens)
        self.reads_edges = reads_edges(self.relation)
        self._reset_token()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.nodes, *self.blocks, self.norm, self.head):
            if layer is not None:
                layer.reset_parameters()
        self._reset_token()

    def _reset_token(self) -> None:
        if self.token is not None:
            nn.init.normal_(self.token)

    def forward(
        self,
        x: Tensor | None,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        pos: Tensor | None = None,
        num_graphs: int | None = None,
        **pairs: Tensor | None,
    ) -> Tensor:
        """The outputs of a batch of graphs, whose nodes and edges stand one after the other as in a batch of PyG.

        Args:
            x: (V, C) or (V,) categories, integers or floats that hold integers, or (V, F) real numbers. None for a
                model without them, which then needs the batch.
            edge_index: (2, E) int64, the nodes i and j of each edge; an undirected edge is given in both directions.
            edge_attr: (E,), (E, 1) or (E, C) categories, or (E, F) real numbers; read only where the encoding is over
                edges.
            batch: (V,) int64, the graph of each node, not descending; None for one graph.
            pos: (V, S), floating, where the nodes lie; read only by an encoding over distances in space.
            num_graphs: B, needed where the last graphs have no nodes.
            **pairs: what is known of pairs of nodes, made beforehand: hops, (sum of n^2 over the graphs,), the rows of
                each graph's distances one after the other. What is absent is made from the edges.

        Returns:
            (B, num_outputs), or (V, num_outputs) for readout "nodes".

        Raises:
            ValueError: something is missing, does not fit or (on CPU, outside compile and export) is out of range.
        """
        prepare = self._prepare
        if torch.compiler.is_compiling():
            # Sizes come from values, for which a graph would be compiled anew with every batch.
            prepare = torch.compiler.disable(prepare)
        graphs, index = prepare(x, edge_index, edge_attr, batch, pos, num_graphs, pairs)
        tokens, hidden = self._tokens(x, graphs)
        for block in self.blocks:
            tokens = block(tokens, index=index, key_padding_mask=hidden)
        if self.norm is not None:
            tokens = self.norm(tokens)
        return self.head(self._read(tokens, graphs))

    def _prepare(
        self,
        x: Tensor | None,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        batch: Tensor | None,
        pos: Tensor | None,
        num_graphs: int | None,
        pairs: Mapping[str, Tensor | None],
    ) -> tuple[GraphBatch, Any]:
        """The graphs, and the index of the encodings, made once for all blocks."""
        for name in pairs:
            if name not in PAIR_VALUES:
                raise ValueError(f"there is no argument {name!r} of pairs of nodes; {nearest(name, PAIR_VALUES)}")
        counted = next((values for values in (x, batch, pos) if values is not None), None)
        if counted is None:
            raise ValueError(
                "without x the number of nodes is unknown; pass batch, the graph of each node, "
                "for one graph torch.zeros(num_nodes, dtype=torch.long)"
            )
        given = {name: values for name, values in pairs.items() if values is not None}
        known = self._edges(edge_attr, edge_index)
        graphs = GraphBatch(edge_index, len(counted), batch, num_graphs, known, pos, given)
        if isinstance(self.relation, Mapping):
            return graphs, {key: relation.of_graphs(graphs) for key, relation in self.relation.items()}
        return graphs, None if self.relation is None else self.relation.of_graphs(graphs)

    def _edges(self, edge_attr: Tensor | None, edge_index: Tensor) -> Tensor | None:
        """What is known of edges, (E, C) int64 or (E, F); None where the model takes nothing of them."""
        if not self.reads_edges:
            return None
        if edge_attr is None:
            given = "edge_types" if self.edge_features is None else "edge_features"
            if self.edge_features is not None or max(self.edge_types or [1]) > 1:
                raise ValueError(
                    f"the model has {given} and the graphs have no edge_attr; pass edge_attr, or build the model "
                    f"without {given}"
                )
            return None
        if edge_index.ndim == 2 and len(edge_attr) != edge_index.shape[1]:
            raise ValueError(f"edge_attr has {len(edge_attr)} rows for {edge_index.shape[1]} edges; give one for each")
        if self.edge_features is None:
            return as_categories(edge_attr, self.edge_types or [1], "edge_attr", "edge_types")
        return as_features(edge_attr, self.edge_features, "edge_attr", "edge_features", self.head.weight.dtype)

    def _tokens(self, x: Tensor | None, graphs: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """The tokens of each graph, (B, N, dim), after its own token if there is one, and which of them are padding."""
        nodes = self.dropout(self.nodes(x, graphs))
        batch, n, hidden = len(graphs.sizes), graphs.longest, None
        if graphs.has_padding:
            hidden = graphs.padding
            tokens = nodes.new_zeros(batch, n, nodes.shape[-1])
            tokens = tokens.index_put((graphs.graph_of_nodes, graphs.places), nodes)
        else:
            tokens = nodes.view(batch, n, nodes.shape[-1])
        if self.token is not None:
            tokens = torch.cat((self.token.to(nodes.dtype).expand(batch, 1, -1), tokens), dim=1)
            hidden = None if hidden is None else nn.functional.pad(hidden, (1, 0), value=False)
        return tokens, hidden

    def _read(self, tokens: Tensor, graphs: GraphBatch) -> Tensor:
        if self.readout == "token":
            return tokens[:, 0]
        if self.readout == "nodes":
            return tokens[graphs.graph_of_nodes, graphs.places]
        total = tokens.masked_fill(graphs.padding[..., None], 0.0).sum(dim=1)
        if self.readout == "sum":
            # Else the outputs of large graphs begin, and move with each step of the optimizer, many units away.
            return total / math.sqrt(total.shape[-1])
        return total / graphs.sizes.clamp(min=1)[:, None]
