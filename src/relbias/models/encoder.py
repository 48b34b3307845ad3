"""A bidirectional encoder of sequences."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from relbias.attention.masks import Window
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.block import TransformerBlock
from relbias.models.documents import document_positions
from relbias.models.token_embedding import TokenEmbedding
from relbias.relations import Sequence
from relbias.relations.base import check_size


class SequenceEncoder(nn.Module):
    """A bidirectional transformer: a vector for each token, which depends on all tokens.

    Token embeddings and blocks, as in `LanguageModel` without the causal mask. An encoding that is applied at the input
    (sinusoidal, learned) is built once, any other one for each block; a built encoding is shared.

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
        window: (left, right), in tokens: a token attends to so many before and after it in each block; None for all.
        relation: a Sequence, which is the default; an encoding with a table needs Sequence(max_distance).
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embedding: the `TokenEmbedding`.
        blocks: the blocks.

    Raises:
        ValueError: sizes do not fit, or the encoding does not take a sequence.

    Example:
        >>> encoder = SequenceEncoder("t5", num_tokens=65, dim=32, depth=2)
        >>> encoder(torch.randint(65, (2, 10))).shape
        torch.Size([2, 10, 32])
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
        window: Window | None = None,
        relation: Sequence | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("depth", depth, 1)
        self.num_tokens, self.dim, self.window = num_tokens, dim, window
        like: Any = {"device": device, "dtype": dtype}
        self.embedding = TokenEmbedding(encoding, num_tokens, dim, num_heads, relation, max_length, **like)
        block: Any = {"num_kv_heads": num_kv_heads, "mlp_ratio": mlp_ratio, "dropout": dropout, "norm": norm, **like}
        per_layer = self.embedding.per_layer
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, per_layer, relation, **block) for _ in range(depth)
        )
        self.norm: Any = nn.LayerNorm(dim, **like) if norm == "pre" else None

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.embedding, *self.blocks, self.norm):
            if layer is not None:
                layer.reset_parameters()

    def forward(
        self,
        tokens: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The vector of each token.

        Args:
            tokens: (B, N) integers, each in [0, num_tokens).
            key_padding_mask: (B, N) bool, True = padding, whose vectors mean nothing. With padding at the left, give
                positions that count from each item's first token; see `padded_positions`.
            document_ids: (B, N) integers: a token attends to its own document. Positions then start anew with each.
            positions: (N,) or (B, N) integers, the tokens' positions.

        Returns:
            (B, N, dim).

        Raises:
            ValueError: shapes do not fit, or a token or a position has no vector.
        """
        given = positions  # those of documents only begin anew with each, which offsets do not need to be told
        if document_ids is not None and given is None:
            positions = document_positions(document_ids)
        x = self.embedding(tokens, positions)
        for block in self.blocks:
            x = block(
                x,
                window=self.window,
                key_padding_mask=key_padding_mask,
                document_ids=document_ids,
                positions=given if block.attention.encoding.offsets_only else positions,
            )
        return x if self.norm is None else self.norm(x)
