"""Conditional positional encoding, a convolution of the tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.absolute import InputEncoding
from relbias.encodings.offsets import without_autocast
from relbias.relations import Grid, GridIndex, Relation, SequenceIndex


class CPE(InputEncoding):
    """A convolution of the patches over the grid, added to them (CPVT, https://arxiv.org/abs/2102.10882).

    embed(x) = x + weight * x + bias: a depthwise 3 x 3 convolution with zeros around the grid, by which patches at the
    border know where they are and, layer by layer, the others. Prefix tokens stay as they are. Any size of grid. The
    paper applies it after the first block rather than before, where it helps less.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Grid.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters; the convolution is computed at least in float32.

    Attributes:
        weight: (H D, 1, 3, 3), drawn as torch draws that of a convolution.
        bias: (H D,), likewise.

    Example:
        >>> encoding = CPE(num_heads=3, head_dim=64, relation=Grid(14, 14, prefix_tokens=1))
        >>> encoding.embed(torch.zeros(2, 197, 192)).shape
        torch.Size([2, 197, 192])
    """

    name = "cpe"
    formula = "x + conv3x3(x) at the input, depthwise"
    paper = "Chu et al. 2023, https://arxiv.org/abs/2102.10882"
    relations = (Grid,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        self.weight, self.bias = self._parameter(self.dim, 1, 3, 3), self._parameter(self.dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a new convolution."""
        super().reset_parameters()
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -1 / 3, 1 / 3)  # one over the root of the 9 numbers that each output sees

    def added(self, x: Tensor, index: SequenceIndex | GridIndex) -> Tensor:
        if not isinstance(index, GridIndex):
            raise ValueError(f"'cpe' needs the index of a grid, got a {type(index).__name__}")
        if index.patches is not None:
            raise ValueError("'cpe' is a convolution over a whole grid, and the index is of some patches")
        dtype = torch.promote_types(torch.promote_types(x.dtype, self.weight.dtype), torch.float32)
        patches = x[:, index.prefix_tokens :].mT.unflatten(-1, (index.height, index.width)).to(dtype)
        weight, bias = self.weight.to(dtype), self.bias.to(dtype)
        with without_autocast(x):
            vectors = nn.functional.conv2d(patches, weight, bias, padding=1, groups=self.dim)
        return nn.functional.pad(vectors.flatten(2).mT, (0, 0, index.prefix_tokens, 0))

    def zero_(self) -> None:
        """Set the convolution to zero."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
