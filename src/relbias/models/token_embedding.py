"""What models of sequences have at their input: vectors of tokens, and of absolute positions where there are such."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relbias.encodings import Encoding, EncodingSpec
from relbias.models.input_encoding import split_encoding
from relbias.relations import Sequence
from relbias.relations.base import as_integers, can_check_values, check_size


class TokenEmbedding(nn.Module):
    """Vectors of tokens, x = sqrt(dim) E[token] (https://arxiv.org/abs/1706.03762), and of positions.

    An encoding that is applied at the input (learned, sinusoidal) is built here, once. Any other is for the layers, and
    nothing is added here.

    Args:
        encoding: of the model, as in `create_encoding`.
        num_tokens: the number of different tokens.
        dim: the size of a token's vector.
        num_heads: H, a divisor of `dim`.
        relation: a Sequence, which is the default.
        max_length: the number of positions, for an encoding that has a vector for each.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        weight: E, (num_tokens, dim), drawn with a standard deviation of 0.02, so that it also is a matrix from a
            model's outputs to logits that are small at the start.
        position: the encoding that is applied at the input, or None.
        per_layer: the encoding for the layers, as in `create_encoding`.

    Raises:
        ValueError: a size is not positive or does not divide, or an encoding at the input has no length.

    Example:
        >>> embedding = TokenEmbedding("learned", num_tokens=65, dim=32, num_heads=4, max_length=64)
        >>> embedding(torch.zeros(2, 10, dtype=torch.long)).shape
        torch.Size([2, 10, 32])
        >>> embedding.per_layer
        'none'
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        num_tokens: int,
        dim: int,
        num_heads: int,
        relation: Sequence | None = None,
        max_length: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("num_tokens", num_tokens), ("dim", dim), ("num_heads", num_heads)):
            check_size(name, size, 1)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        if max_length is not None:
            check_size("max_length", max_length, 1)
        self.num_tokens, self.dim = num_tokens, dim
        self.weight = nn.Parameter(torch.empty(num_tokens, dim, device=device, dtype=dtype))
        self.position, self.per_layer = split_encoding(
            encoding, num_heads, dim // num_heads, relation, max_length, device=device, dtype=dtype
        )
        self._reset_weight()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        self._reset_weight()
        if self.position is not None:
            self.position.reset_parameters()

    def _reset_weight(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, tokens: Tensor, positions: Tensor | None = None, past: int = 0) -> Tensor:
        """The vectors of tokens.

        Args:
            tokens: (B, N) integers, each in [0, num_tokens).
            positions: (N,) or (B, N) integers, the tokens' positions.
            past: how many tokens there were before these; without `positions` they start there.

        Returns:
            (B, N, dim).

        Raises:
            ValueError: another shape or dtype, or a token or a position that has no vector.
        """
        tokens = check_tokens(tokens, self.num_tokens)
        x = nn.functional.embedding(tokens, self.weight) * math.sqrt(self.dim)
        if self.position is None:
            return x
        n, relation = x.shape[1], self.position.relation
        if positions is not None and self.position.fixed_size:
            self.check_length(n)  # values are looked at on CPU alone, sizes everywhere
        index = relation(n, past + n) if positions is None else relation(n, positions=positions)
        return self.position.embed(x, index)

    def check_length(self, length: int) -> None:
        """Raise ValueError if there are no positions for so many tokens."""
        if self.position is not None and length > 0:
            last = self.weight.new_zeros(1, 1, self.dim)
            with torch.no_grad():
                self.position.embed(last, self.position.relation(1, length))


def check_tokens(tokens: Tensor, num_tokens: int, name: str = "tokens") -> Tensor:
    """Tokens (B, N) as int64, or a ValueError that says what is wrong with them; `name` is what the user called them.

    Values are looked at on CPU alone, and not in a program that is being compiled.
    """
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        given = f"shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else f"a {type(tokens).__name__}"
        raise ValueError(f"{name} must be a tensor of shape (B, N), got {given}")
    tokens = as_integers(name, tokens).long()
    if can_check_values(tokens) and tokens.numel():
        low, high = (int(value) for value in tokens.aminmax())
        if low < 0 or high >= num_tokens:
            raise ValueError(f"{name} must be from 0 to {num_tokens - 1}, got {low if low < 0 else high}")
    return tokens
