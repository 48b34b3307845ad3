"""The one transformer block."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from relbias.attention import KVCache, RelativeAttention
from relbias.encodings import Encoding, EncodingSpec
from relbias.relations import Relation


class TransformerBlock(nn.Module):
    """Attention and a two-layer network, each added to its input, with a LayerNorm before each or after each sum.

    Before ("pre", https://arxiv.org/abs/2002.04745): x + f(norm(x)); a model of such blocks ends with a norm of its
    own. After ("post", https://arxiv.org/abs/1706.03762): norm(x + f(x)).

    Args:
        dim: the size of a token.
        num_heads: H.
        encoding: as in `RelativeAttention`.
        relation: as in `RelativeAttention`.
        num_kv_heads: as in `RelativeAttention`.
        cross_attention: whether there is attention to a context between the two, without a relation.
        mlp_ratio: the width of the network in the middle, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        norm: "pre" or "post".
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: another `norm`, or as in `RelativeAttention`.

    Example:
        >>> block = TransformerBlock(64, num_heads=4, encoding="rope")
        >>> block(torch.randn(2, 10, 64), is_causal=True).shape
        torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        encoding: EncodingSpec | Encoding = "none",
        relation: Relation | None = None,
        *,
        num_kv_heads: int | None = None,
        cross_attention: bool = False,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f'norm is "pre" or "post", got {norm!r}')
        self.norm = norm
        like: Any = {"device": device, "dtype": dtype}
        self.norm1 = nn.LayerNorm(dim, **like)
        heads: Any = {"num_kv_heads": num_kv_heads, "dropout": dropout}
        self.attention = RelativeAttention(dim, num_heads, encoding, relation, **heads, **like)
        self.norm_context = nn.LayerNorm(dim, **like) if cross_attention else None
        self.cross_attention = RelativeAttention(dim, num_heads, "none", **heads, **like) if cross_attention else None
        self.norm2 = nn.LayerNorm(dim, **like)
        width = int(dim * mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(dim, width, **like), nn.GELU(), nn.Linear(width, dim, **like))
        self.dropout = nn.Dropout(dropout)
        self._reset_mlp()

    def reset_parameters(self) -> None:
        """Give every parameter its start: Xavier for matrices, zero for their biases."""
        for layer in (self.norm1, self.attention, self.norm_context, self.cross_attention, self.norm2):
            if layer is not None:
                layer.reset_parameters()
        self._reset_mlp()

    def _reset_mlp(self) -> None:
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Tensor,
        *,
        memory: Tensor | None = None,
        context: Tensor | None = None,
        context_padding_mask: Tensor | None = None,
        context_cache: KVCache | None = None,
        **arguments: Any,
    ) -> Tensor:
        """The tokens after one block.

        Args:
            x: (B, N, dim).
            memory: (B, M - N, dim), earlier inputs of this block, which the tokens attend to as well.
            context: (B, C, dim), for a block with cross-attention.
            context_padding_mask: (B, C) bool, True = padding.
            context_cache: the context's keys and values, which the first call makes and the others read.
            **arguments: those of `RelativeAttention.forward`, such as `index` and masks.

        Returns:
            (B, N, dim).

        Raises:
            ValueError: there is a context and no cross-attention or the other way round, or as in `RelativeAttention`.
        """
        if (context is None) != (self.cross_attention is None):
            raise ValueError(
                "a block with cross_attention=True needs a context"
                if context is None
                else "a block takes a context with cross_attention=True alone"
            )
        if memory is not None:
            arguments["memory"] = memory if self.norm == "post" else self.norm1(memory)
        x = self._add(x, self.norm1, self.attention, **arguments)
        if self.cross_attention is not None:
            given = {"context": context, "key_padding_mask": context_padding_mask, "cache": context_cache}
            x = self._add(x, self.norm_context, self.cross_attention, **given)
        return self._add(x, self.norm2, self.mlp)

    def _add(self, x: Tensor, norm: Any, branch: Any, **arguments: Any) -> Tensor:
        """X and what a branch makes of it, with the norm where it stands."""
        if self.norm == "post":
            return norm(x + self.dropout(branch(x, **arguments)))
        return x + self.dropout(branch(norm(x), **arguments))
