"""A transformer of source code, whose attention sees the syntax tree and the flow of data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relbias.encodings import Encoding, EncodingSpec
from relbias.models.block import TransformerBlock
from relbias.models.code_relations import SourceTrees, code_indices, code_relations
from relbias.models.input_encoding import split_encoding
from relbias.models.named_relations import choose_relations
from relbias.relations.base import as_integers, can_check_values, check_size


class SourceTransformer(nn.Module):
    """A bidirectional encoder of the tokens of source code: a vector for each token, which depends on all of them.

    A token starts as the sum of the embeddings of its words and, with `node_types`, of the types of its node in the
    syntax tree and of the node above it. A name can be hidden: it has no words, and a learned vector in their place.

    One encoding alone is over offsets of tokens. The keys of a mapping choose relations, whose terms add up:

    - offset: in tokens (shaw, t5, alibi, rope and others);
    - tree: the steps up to the lowest common ancestor of the two nodes and down from there (table, ast_trans);
    - hops: their sum (table, grpe);
    - ancestor, sibling, depth: signed distances (table, ast_trans); neighbor: parent, child, next or previous sibling;
    - edges: sets of edge types between tokens (great, table);
    - hop_bins, ancestor_bins, sibling_bins, pagerank_bins: what the Code Transformer reads (code_transformer), in bins
      that mean the same in all sources.

    {"offset": "transformer_xl", "hop_bins": "code_transformer", "ancestor_bins": "code_transformer", "sibling_bins":
    "code_transformer", "pagerank_bins": "code_transformer"} are the terms of the Code Transformer
    (https://arxiv.org/abs/2103.11318), {"edges": "great"} those of GREAT (https://openreview.net/forum?id=B1lnbRNtwr).

    Args:
        encoding: a name, a mapping with the keys above, a callable or a built encoding; see `create_encoding`.
        num_words: how many different words there are, with 0 for none.
        node_types: how many types of nodes there are, with 0 for unknown ones; None leaves them out of the input.
        max_steps: of "tree", the most steps up or down with codes of their own.
        max_distance: of "ancestor", "sibling" and "depth", the largest distance with a code of its own.
        max_hops: of "hops", likewise.
        edge_types: T, how many types of edges there are.
        max_length: the number of positions, for an encoding that has a vector for each (learned); others take any.
        dim: the size of a token's vector.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: sizes do not fit, or there is no such encoding or relation.

    Example:
        >>> model = SourceTransformer({"offset": "shaw", "hops": "table"}, num_words=50, dim=32, depth=2)
        >>> words = torch.tensor([[[7, 9], [3, 0], [8, 0]]])  # three tokens, the first of two words
        >>> model(words, parents=torch.tensor([[-1, 0, 0]]), node_of_token=torch.tensor([[1, 0, 2]])).shape
        torch.Size([1, 3, 32])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_words: int,
        node_types: int | None = None,
        max_steps: int = 8,
        max_distance: int = 8,
        max_hops: int = 20,
        edge_types: int = 12,
        max_length: int | None = None,
        dim: int = 64,
        depth: int = 3,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("num_words", num_words), ("depth", depth), ("dim", dim), ("num_heads", num_heads)):
            check_size(name, size, 1)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        self.dim, self.num_words, self.node_types = dim, num_words, node_types
        relations = code_relations(max_steps, max_distance, max_hops, edge_types)
        relation: Any = choose_relations(encoding, relations, "source code")
        self.edge_types = edge_types if isinstance(relation, Mapping) and "edges" in relation else None
        like: Any = {"device": device, "dtype": dtype}
        self.words = nn.Embedding(num_words, dim, **like)
        self.types: Any = None
        if node_types is not None:
            check_size("node_types", node_types, 1)
            self.types = nn.ModuleList(nn.Embedding(node_types, dim, **like) for _ in range(2))
        self.position, per_layer = split_encoding(encoding, num_heads, dim // num_heads, relation, max_length, **like)
        block: Any = {"mlp_ratio": mlp_ratio, "dropout": dropout, **like}
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, per_layer, relation, **block) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, **like)
        self._reset_embeddings()

    def reset_parameters(self) -> None:
        """Give every parameter its start: embeddings are drawn with a standard deviation of 0.5."""
        for layer in (*self.blocks, self.norm, self.position):
            if layer is not None:
                layer.reset_parameters()
        self._reset_embeddings()

    def _reset_embeddings(self) -> None:
        for table in (self.words, *(self.types or [])):
            nn.init.normal_(table.weight, std=0.5)

    def forward(
        self,
        words: Tensor,
        *,
        parents: Tensor | None = None,
        node_of_token: Tensor | None = None,
        node_types: Tensor | None = None,
        edges: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """The vector of each token.

        Args:
            words: (B, N, W) integers in [0, num_words), the words of each token, after which there are 0; of a hidden
                name all are 0.
            parents: (B, V) integers, the node above each node of the tree; -1 for a root and for padding.
            node_of_token: (B, N) integers, the node of each token; -1 for none and for padding.
            node_types: (B, V) integers in [0, node_types), the type of each node.
            edges: (B, N, N) integers, the set of the types of edges between two tokens, see `EdgeSets`.
            key_padding_mask: (B, N) bool, True = padding, whose vectors mean nothing.

        Returns:
            (B, N, dim).

        Raises:
            ValueError: shapes do not fit, something that the model reads is missing, or a number is out of range.
        """
        _check_shapes(words, parents, node_of_token, node_types, edges)
        x = self._embed(words, parents, node_of_token, node_types)
        trees = SourceTrees(parents, node_of_token, edges)
        index = code_indices(self.blocks[0].attention.encoding.relation, trees)
        for block in self.blocks:
            x = block(x, index=index, key_padding_mask=key_padding_mask)
        return self.norm(x)

    def _embed(self, words: Tensor, parents: Tensor | None, nodes: Tensor | None, node_types: Tensor | None) -> Tensor:
        words = _numbers("words", words, self.num_words)
        counted = words > 0
        # The first word counts always: where it is 0 the name is hidden, and row 0 stands in its place.
        counted = torch.cat((torch.ones_like(counted[..., :1]), counted[..., 1:]), dim=-1)
        x = (self.words(words) * counted[..., None]).sum(dim=2)
        if self.types is not None:
            if parents is None or nodes is None or node_types is None:
                raise ValueError("a model with node_types is given parents, node_of_token and node_types")
            node_types = _numbers("node_types", node_types, self.types[0].num_embeddings)
            nodes = nodes.long()
            above = parents.long().gather(1, nodes.clamp(min=0)).where(nodes >= 0, -1)
            for table, places in zip(self.types, (nodes, above), strict=True):
                x = x + table(node_types.gather(1, places.clamp(min=0)).where(places >= 0, 0))
        if self.position is not None:
            x = self.position.embed(x, self.position.relation(x.shape[1], x.shape[1]))
        return x


def _check_shapes(
    words: Tensor, parents: Tensor | None, nodes: Tensor | None, node_types: Tensor | None, edges: Tensor | None
) -> None:
    if words.ndim != 3 or not words.shape[2]:
        raise ValueError(f"words must have shape (B, N, W) with at least one word, got {tuple(words.shape)}")
    b, n, _ = words.shape
    if parents is not None and (parents.ndim != 2 or len(parents) != b or not parents.shape[1]):
        raise ValueError(f"parents must have shape ({b}, V) with at least one node, got {tuple(parents.shape)}")
    expected = (("node_of_token", nodes, (b, n)), ("edges", edges, (b, n, n)))
    if parents is not None:
        expected = (*expected, ("node_types", node_types, tuple(parents.shape)))
    for name, values, shape in expected:
        if values is not None and not isinstance(values, Tensor):
            raise ValueError(f"{name} must be a tensor of shape {shape}, got a {type(values).__name__}")
        if values is not None and values.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(values.shape)}")
    if nodes is not None and parents is not None:
        _numbers("node_of_token", nodes, parents.shape[1], low=-1)


def _numbers(name: str, values: Tensor, limit: int, low: int = 0) -> Tensor:
    """Integers in [low, limit) as int64, or a ValueError; values are looked at on CPU alone."""
    values = as_integers(name, values).long()
    if can_check_values(values) and values.numel():
        least, most = (int(value) for value in values.aminmax())
        if least < low or most >= limit:
            raise ValueError(f"{name} must be from {low} to {limit - 1}, got {least if least < low else most}")
    return values
