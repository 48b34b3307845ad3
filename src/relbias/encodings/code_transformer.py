"""The Code Transformer's projected sinusoids of binned distances."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.relations import Bins, BinsIndex, Relation
from relbias.terms import Terms


class CodeTransformer(Encoding):
    """Keys made from sinusoids of a distance between two nodes of a syntax tree (https://arxiv.org/abs/2103.11318).

    s_ij = c (q_i . k_j + (q_i + w) . W_h R[x_ij]), with x_ij the value of the bin of (i, j), R[x] = [sin(x f_1), ...,
    cos(x f_1), ...], f_m = 10000^(-2 m / d) and d = H D. Bins and values may be those of each sample. A key is made
    for each bin, never for each pair.

    The paper has several such relations, such as shortest paths, ancestors, siblings and personalised PageRank, each
    with W and w of its own, whose terms add up: give them in a mapping, with "transformer_xl" for the distance of the
    tokens.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Bins.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        projection: (H, D, H D), W by head, drawn with a standard deviation of 0.02.
        w: (H, D), likewise.

    Raises:
        ValueError: H D is odd, or the relation is not a Bins.

    Example:
        >>> import relbias as rb
        >>> bins = Bins(num_bins=8)
        >>> attention = rb.RelativeAttention(
        ...     32, 4, {"paths": "code_transformer", "tokens": "transformer_xl"}, {"paths": bins}
        ... )
        >>> hops = torch.tensor([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
        >>> attention(torch.randn(1, 3, 32), index={"paths": bins(hops, torch.arange(8))}).shape
        torch.Size([1, 3, 32])
    """

    name = "code_transformer"
    formula = "K = W_h [sin(x f), cos(x f)], x the value of the bin of (i, j), w"
    paper = "Zügner et al. 2021, https://arxiv.org/abs/2103.11318"
    relations = (Bins,)

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
        dim = num_heads * head_dim
        if dim % 2:
            raise ValueError(f"{self.label} has a sine and a cosine per frequency and needs an even H D, got {dim}")
        self.projection = self._parameter(num_heads, head_dim, dim)
        self.w = self._parameter(num_heads, head_dim)
        self.reset_parameters()

    def forward(self, index: BinsIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms(K=self.keys(index.bin_values), w=self.w, index=index)

    def keys(self, values: Tensor) -> Tensor:
        """The keys of bins.

        Args:
            values: (B, R), real.

        Returns:
            (B, H, R, D), in float32 or, with float64 parameters, in float64.
        """
        dim = self.projection.shape[2]
        exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=values.device) / dim
        angles = values[..., None].double() * 10000.0**-exponents
        sinusoids = torch.cat((angles.sin(), angles.cos()), dim=-1)
        dtype = torch.promote_types(self.projection.dtype, torch.float32)
        with without_autocast(self.projection):
            return sinusoids.to(dtype)[:, None] @ self.projection.to(dtype).mT

    def zero_(self) -> None:
        """Set the projection to zero; w, which is multiplied with it, stays."""
        nn.init.zeros_(self.projection)
