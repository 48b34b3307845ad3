"""The one transformer block."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from relbias.attention import RelativeAttention
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
        self.attention = RelativeAttention(
            dim, num_heads, encoding, relation, num_kv_heads=num_kv_heads, dropout=dropout, **like
        )
        self.norm2 = nn.LayerNorm(dim, **like)
        width = int(dim * mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(dim, width, **like), nn.GELU(), nn.Linear(width, dim, **like))
        self.dropout = nn.Dropout(dropout)
        self._reset_mlp()

    def reset_parameters(self) -> None:
        """Give every parameter its start: Xavier for matrices, zero for their biases."""
        for layer in (self.norm1, self.attention, self.norm2):
            layer.reset_parameters()
        self._reset_mlp()

    def _reset_mlp(self) -> None:
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, **arguments: Any) -> Tensor:
        """The tokens after one block.

        Args:
            x: (B, N, dim).
            **arguments: those of `RelativeAttention.forward`, such as `index` and masks.

        Returns:
            (B, N, dim).
        """
        if self.norm == "post":
            x = self.norm1(x + self.dropout(self.attention(x, **arguments)))
            return self.norm2(x + self.dropout(self.mlp(x)))
        x = x + self.dropout(self.attention(self.norm1(x), **arguments))
        return x + self.dropout(self.mlp(self.norm2(x)))
