"""An encoder-decoder, from one sequence to another."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any, Literal

import torch
from torch import Tensor, nn

from relbias.attention import KVCache
from relbias.encodings import Encoding, EncodingSpec
from relbias.models.block import TransformerBlock
from relbias.models.token_embedding import TokenEmbedding, check_tokens
from relbias.relations import Sequence
from relbias.relations.base import check_size


class EncoderDecoder(nn.Module):
    """A transformer from a source to a target (https://arxiv.org/abs/1706.03762): the logits of the target's tokens.

    The decoder's blocks are causal and attend to the encoder's outputs, without a relation. Source and target share
    the token embeddings, and the logits are by default products with them. An encoding that is applied at the input
    (sinusoidal, learned) is built once, any other one for each block; a built encoding is shared.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`.
        num_tokens: the number of different tokens.
        decoder_encoding: that of the decoder's blocks, where it is another, such as a `T5` with bidirectional=False.
        max_length: the number of positions, for an encoding that has a vector for each (learned); others take any.
        dim: the size of a token's vector.
        depth: how many blocks the encoder has, and the decoder.
        num_heads: H, a divisor of `dim`.
        num_kv_heads: the number of heads of k and v, a divisor of H; H by default.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        norm: "pre" or "post"; see `TransformerBlock`.
        tied: whether the logits are products with the token embeddings, rather than with a matrix of their own.
        relation: a Sequence, which is the default; an encoding with a table needs Sequence(max_distance).
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embedding: the `TokenEmbedding`.
        encoder: the encoder's blocks.
        blocks: the decoder's blocks.

    Raises:
        ValueError: sizes do not fit, or an encoding does not take a sequence.

    Example:
        >>> model = EncoderDecoder("rope", num_tokens=65, dim=32, depth=2)
        >>> model(torch.randint(65, (2, 10)), torch.randint(65, (2, 7))).shape
        torch.Size([2, 7, 65])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_tokens: int,
        decoder_encoding: EncodingSpec | Encoding | None = None,
        max_length: int | None = None,
        dim: int = 96,
        depth: int = 3,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        tied: bool = True,
        relation: Sequence | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("depth", depth, 1)
        self.num_tokens = num_tokens
        like: Any = {"device": device, "dtype": dtype}
        self.embedding = TokenEmbedding(encoding, num_tokens, dim, num_heads, relation, max_length, **like)
        block: Any = {"num_kv_heads": num_kv_heads, "mlp_ratio": mlp_ratio, "dropout": dropout, "norm": norm, **like}
        first = self.embedding.per_layer
        second = first if decoder_encoding is None else decoder_encoding
        self.encoder: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, first, relation, **block) for _ in range(depth)
        )
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, second, relation, cross_attention=True, **block) for _ in range(depth)
        )
        self.encoder_norm: Any = nn.LayerNorm(dim, **like) if norm == "pre" else None
        self.norm: Any = nn.LayerNorm(dim, **like) if norm == "pre" else None
        self.head: Any = None if tied else nn.Linear(dim, num_tokens, **like)

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        for layer in (self.embedding, *self.encoder, *self.blocks, self.encoder_norm, self.norm, self.head):
            if layer is not None:
                layer.reset_parameters()

    def new_caches(self) -> list[tuple[KVCache, KVCache]]:
        """For each block of the decoder two empty caches, of its own tokens and of the source."""
        return [(KVCache(), KVCache()) for _ in self.blocks]

    def forward(
        self,
        source: Tensor,
        tokens: Tensor,
        *,
        source_padding_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """The logits of the token after each token of the target.

        Args:
            source: (B, M) integers, each in [0, num_tokens).
            tokens: (B, N) integers, the target, from its start token on.
            source_padding_mask: (B, M) bool, True = padding.
            key_padding_mask: (B, N) bool, likewise of the target.

        Returns:
            (B, N, num_tokens).

        Raises:
            ValueError: shapes do not fit, or a token or a position has no vector.
        """
        encoded = self.encode(source, source_padding_mask)
        return self.decode(tokens, encoded, source_padding_mask=source_padding_mask, key_padding_mask=key_padding_mask)

    def encode(self, source: Tensor, source_padding_mask: Tensor | None = None) -> Tensor:
        """The encoder's outputs, (B, M, dim); the arguments are those of `forward`."""
        x = self.embedding(check_tokens(source, self.num_tokens, "source"))
        for block in self.encoder:
            x = block(x, key_padding_mask=source_padding_mask)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def decode(
        self,
        tokens: Tensor,
        encoded: Tensor,
        *,
        source_padding_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        caches: Items[tuple[KVCache, KVCache]] | None = None,
    ) -> Tensor:
        """The logits of the token after each token of the target, from the encoder's outputs.

        Args:
            tokens: (B, N) integers, the target, or with caches its next tokens.
            encoded: (B, M, dim), of `encode`.
            source_padding_mask: (B, M) bool, True = padding.
            key_padding_mask: (B, N) bool, likewise of the tokens.
            positions: (N,) or (B, N) integers, the tokens' positions; by default they go on from the caches.
            caches: of `new_caches`: the tokens so far, to which these are added, and the keys of the source, which the
                first call makes and the others read.

        Returns:
            (B, N, num_tokens).
        """
        if caches is not None and len(caches) != len(self.blocks):
            raise ValueError(f"caches must be one pair for each of {len(self.blocks)} blocks, got {len(caches)}")
        x = self.embedding(tokens, positions, past=caches[0][0].length if caches else 0)
        for number, block in enumerate(self.blocks):
            own, cross = (None, None) if caches is None else caches[number]
            x = block(
                x,
                is_causal=True,
                key_padding_mask=key_padding_mask,
                positions=positions,
                cache=own,
                context=encoded,
                context_padding_mask=source_padding_mask,
                context_cache=cross,
            )
        x = x if self.norm is None else self.norm(x)
        return nn.functional.linear(x, self.embedding.weight) if self.head is None else self.head(x)
