"""What reads the vectors of the tokens of source code: pointers at tokens, and classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PointerHead(nn.Module):
    """Scores with which a token points at others, s = W_q x_i . W_k x_j / sqrt(dim).

    Args:
        dim: the size of a token's vector.
        device: where parameters lie.
        dtype: of the parameters.

    Example:
        >>> tokens = torch.randn(2, 5, 16)
        >>> PointerHead(16)(tokens[:, 0], tokens).shape
        torch.Size([2, 5])
    """

    def __init__(self, dim: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(dim, dim, device=device, dtype=dtype)
        self.key = nn.Linear(dim, dim, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Give every parameter its start, that of torch's layers."""
        self.query.reset_parameters()
        self.key.reset_parameters()

    def forward(self, query: Tensor, tokens: Tensor) -> Tensor:
        """The scores.

        Args:
            query: (Q, dim), the vectors of the tokens that point.
            tokens: (Q, N, dim), those that each may point at.

        Returns:
            (Q, N).
        """
        return (self.key(tokens) @ self.query(query)[..., None])[..., 0] * query.shape[-1] ** -0.5


class ClassificationHead(nn.Module):
    """Logits of a whole source, from the mean of its tokens' vectors.

    Args:
        dim: the size of a token's vector.
        num_classes: how many logits.
        device: where parameters lie.
        dtype: of the parameters.

    Example:
        >>> ClassificationHead(16, num_classes=3)(torch.randn(2, 5, 16)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, num_classes, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Give every parameter its start, that of torch's layers."""
        self.linear.reset_parameters()

    def forward(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """The logits.

        Args:
            tokens: (B, N, dim).
            key_padding_mask: (B, N) bool, True = padding, which does not count.

        Returns:
            (B, num_classes).
        """
        if key_padding_mask is None:
            return self.linear(tokens.mean(dim=1))
        inside = ~key_padding_mask[..., None]
        return self.linear(tokens.masked_fill(~inside, 0).sum(1) / inside.sum(1).clamp(min=1))
