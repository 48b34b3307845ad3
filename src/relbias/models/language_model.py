"""A decoder-only language model."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relbias.attention import KVCache
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.block import TransformerBlock
from relbias.models.documents import document_positions
from relbias.models.memory import SegmentMemory
from relbias.models.token_embedding import TokenEmbedding
from relbias.relations import Sequence
from relbias.relations.base import check_size


class LanguageModel(nn.Module):
    """A decoder-only transformer: the logits of the next token from the tokens so far.

    Token embeddings, causal blocks and a linear map to logits, which by default is the embedding's own matrix
    (https://arxiv.org/abs/1608.05859). An encoding that is applied at the input (sinusoidal, learned) is built once,
    any other one for each block; a built encoding is shared.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`.
        num_tokens: the number of different tokens.
        max_length: the number of positions, for an encoding that has a vector for each (learned); others take any.
        dim: the size of a token's vector.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        num_kv_heads: the number of heads of k and v, a divisor of H; H by default.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        norm: "pre" or "post"; see `TransformerBlock`.
        tied: whether the logits are products with the token embeddings, rather than with a matrix of their own.
        window: how many tokens a token attends to in each block, itself and those before it; None for all.
        relation: a Sequence, which is the default; an encoding with a table needs Sequence(max_distance).
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embedding: the `TokenEmbedding`.
        blocks: the blocks.

    Raises:
        ValueError: sizes do not fit, or the encoding does not take a sequence.

    Example:
        >>> model = LanguageModel("alibi", num_tokens=65, dim=32, depth=2)
        >>> model(torch.randint(65, (2, 10))).shape
        torch.Size([2, 10, 65])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_tokens: int,
        max_length: int | None = None,
        dim: int = 96,
        depth: int = 3,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        tied: bool = True,
        window: int | None = None,
        relation: Sequence | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("depth", depth, 1)
        if window is not None:
            check_size("window", window, 1)
        self.num_tokens, self.window = num_tokens, window
        like: Any = {"device": device, "dtype": dtype}
        self.embedding = TokenEmbedding(encoding, num_tokens, dim, num_heads, relation, max_length, **like)
        block: Any = {"num_kv_heads": num_kv_heads, "mlp_ratio": mlp_ratio, "dropout": dropout, "norm": norm, **like}
        per_layer = self.embedding.per_layer
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, per_layer, relation, **block) for _ in range(depth)
        )
        self.norm: Any = nn.LayerNorm(dim, **like) if norm == "pre" else None
        self.head: Any = None if tied else nn.Linear(dim, num_tokens, **like)

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.embedding, *self.blocks, self.norm, self.head):
            if layer is not None:
                layer.reset_parameters()

    def new_caches(self) -> list[KVCache]:
        """An empty cache for each block."""
        return [KVCache() for _ in self.blocks]

    def forward(
        self,
        tokens: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        positions: Tensor | None = None,
        caches: Items[KVCache] | None = None,
        memory: SegmentMemory | None = None,
    ) -> Tensor:
        """The logits of the token after each token.

        Args:
            tokens: (B, N) integers, each in [0, num_tokens).
            key_padding_mask: (B, N) bool, True = padding. With padding at the left, give positions that count from
                each item's first token; see `padded_positions`.
            document_ids: (B, N) integers: a token attends to its own document. Positions then start anew with each.
            positions: (N,) or (B, N) integers, the tokens' positions; by default they go on from the caches, or count
                within documents.
            caches: one for each block, of `new_caches`: the tokens so far, to which these are added.
            memory: of the segments before this one, to which this one is added; alone, without the other arguments.

        Returns:
            (B, N, num_tokens).

        Raises:
            ValueError: shapes do not fit, a token or a position has no vector, or the encoding cannot use a cache.
        """
        if caches is not None and len(caches) != len(self.blocks):
            raise ValueError(f"caches must be one for each of {len(self.blocks)} blocks, got {len(caches)}")
        given = positions  # those of documents only begin anew with each, which offsets do not need to be told
        if document_ids is not None and given is None:
            if caches is not None:
                raise ValueError("documents with caches need the positions of the new tokens; give positions")
            positions = document_positions(document_ids)
        past = caches[0].length if caches else 0
        if memory is not None:
            if any(other is not None for other in (key_padding_mask, document_ids, positions, caches)):
                raise ValueError("a memory is of whole segments; leave out padding, documents, positions and caches")
            past = memory.seen
        x = self.embedding(tokens, positions, past)
        window = None if self.window is None else (self.window - 1, 0)
        inputs = []
        for number, block in enumerate(self.blocks):
            inputs.append(x)
            x = block(
                x,
                is_causal=True,
                window=window,
                memory=None if memory is None else memory.of(number),
                key_padding_mask=key_padding_mask,
                document_ids=document_ids,
                positions=given if block.attention.encoding.offsets_only else positions,
                cache=None if caches is None else caches[number],
            )
        if memory is not None:
            memory.update(inputs)
        x = x if self.norm is None else self.norm(x)
        return nn.functional.linear(x, self.embedding.weight) if self.head is None else self.head(x)
