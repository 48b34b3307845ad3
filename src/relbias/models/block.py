"""The one transformer block."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias.attention import RelativeAttention
from relbias.encodings import Encoding, EncodingSpec
from relbias.relations import Relation


class TransformerBlock(nn.Module):
    """Attention and a two-layer network, each after a LayerNorm and added to its input (pre-norm).

    Args:
        dim: the size of a token.
        num_heads: H.
        encoding: as in `RelativeAttention`.
        relation: as in `RelativeAttention`.
        mlp_ratio: the width of the network in the middle, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.

    Example:
        >>> import torch
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
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = RelativeAttention(dim, num_heads, encoding, relation, dropout=dropout)
        self.norm2 = nn.LayerNorm(dim)
        width = int(dim * mlp_ratio)
        layers = nn.Linear(dim, width), nn.Linear(width, dim)
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.mlp = nn.Sequential(layers[0], nn.GELU(), layers[1])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, **arguments: Any) -> Tensor:
        """The tokens after one block.

        Args:
            x: (B, N, dim).
            **arguments: those of `RelativeAttention.forward`, such as `index` and masks.

        Returns:
            (B, N, dim).
        """
        x = x + self.dropout(self.attention(self.norm1(x), **arguments))
        return x + self.dropout(self.mlp(self.norm2(x)))
