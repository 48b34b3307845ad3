"""Transformer-XL's projected sinusoids of the distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import occurring_offsets, without_autocast
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_size
from relbias.terms import Terms


class TransformerXL(Encoding):
    """Keys made from sinusoids of the distance (https://arxiv.org/abs/1901.02860).

    s_ij = c ((q_i + u) . k_j + (q_i + w) . W_h R[i - j]), with R[x] = [sin(x f_1), ..., cos(x f_1), ...],
    f_m = 10000^(-2 m / d) and d = H D. The distance i - j has a sign, so that left and right differ. The paper calls
    w v. A memory is a longer context: of M keys the N queries are the last.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence.
        clamp_len: the distance from which on all count as this one, in positions, or None for no limit.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        projection: (H, D, H D), the paper's W_k,R by head, drawn with a standard deviation of 0.02.
        u: (H, D), likewise.
        w: (H, D), likewise.

    Raises:
        ValueError: H D is odd, or `clamp_len` is negative or not an integer.

    Example:
        >>> encoding = TransformerXL(num_heads=8, head_dim=64)
        >>> encoding(Sequence()(10, 25)).names
        ('K', 'u', 'w')
    """

    name = "transformer_xl"
    formula = "K = W_h [sin((i - j) f), cos((i - j) f)], u, w"
    paper = "Dai et al. 2019, https://arxiv.org/abs/1901.02860"
    relations = (Sequence,)
    offsets_only = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        clamp_len: int | None = None,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        dim = num_heads * head_dim
        if dim % 2:
            raise ValueError(f"{self.label} has a sine and a cosine per frequency and needs an even H D, got {dim}")
        if clamp_len is not None:
            check_size(f"{self.label} clamp_len", clamp_len, 0)
        self.clamp_len = clamp_len
        self.projection = self._parameter(num_heads, head_dim, dim)
        self.u = self._parameter(num_heads, head_dim)
        self.w = self._parameter(num_heads, head_dim)
        self.reset_parameters()

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        index = index if self.clamp_len is None else index.clip(self.clamp_len)
        offsets, rows = occurring_offsets(index, self.device)
        return Terms(K=self._table(-offsets, x), u=self.u, w=self.w, index=rows)

    def _table(self, distances: Tensor, x: Tensor | None) -> Tensor:
        """K of one call, ([B,] H, R, D)."""
        return self.keys(distances)

    def keys(self, distances: Tensor) -> Tensor:
        """The keys of some distances.

        Args:
            distances: (R,) int64, i - j, in positions.

        Returns:
            (H, R, D), in float32 or, with float64 parameters, in float64.
        """
        exponents = torch.arange(0, self.projection.shape[2], 2, dtype=torch.float64, device=distances.device)
        angles = distances[:, None] * 10000.0 ** (-exponents / self.projection.shape[2])
        sinusoids = torch.cat((angles.sin(), angles.cos()), dim=-1)
        dtype = torch.promote_types(self.projection.dtype, torch.float32)
        with without_autocast(self.projection):
            return sinusoids.to(dtype) @ self.projection.to(dtype).mT

    def zero_(self) -> None:
        """Set the projection and u to zero; w, which is multiplied with the projection, stays."""
        nn.init.zeros_(self.projection)
        nn.init.zeros_(self.u)
