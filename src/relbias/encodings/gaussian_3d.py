"""Gaussian kernels of the distance in space."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.feature_mlp import head_mlp
from relbias.encodings.row_blocks import in_row_blocks
from relbias.relations import Distances, DistancesIndex, Relation
from relbias.relations.base import check_size
from relbias.terms import Terms

_EPS = 1e-5  # added to the widths


class Gaussian3D(Encoding):
    """Gaussian kernels of the distance between two atoms, through a network (https://openreview.net/forum?id=6K2RM6wVqKu).

    b_ij = MLP_h(phi_ij), phi_ij,k = exp(-(x - m_k)^2 / (2 s_k^2)) / (sqrt(2 pi) s_k), x = a_t d_ij + b_t, where d_ij is
    the distance, t the type of the pair, such as that of two elements, and a, b, m and |s| are learned. The network
    has one hidden layer of K GELU units. It is computed some rows at a time, so that the kernels are never in memory
    for all pairs.

    Papers differ in details; this is the definition of Uni-Mol, with 1e-5 added to the widths s.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Distances of R types of pairs, with that of pairs with a prefix token.
        num_kernels: K.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        factors: (R,), a, 1 at the start.
        shifts: (R,), b, 0 at the start.
        means: (K,), m, drawn uniformly from [0, 3), in the unit of x.
        widths: (K,), s, likewise.
        hidden: the linear map from K to K, drawn as torch draws one.
        out: the linear map from K to H, likewise.

    Raises:
        ValueError: `num_kernels` is not positive, or the relation is not a Distances.

    Example:
        >>> import relbias as rb
        >>> distances = Distances(num_types=4)
        >>> attention = rb.RelativeAttention(64, 8, "gaussian_3d", distances)
        >>> places, atoms = torch.randn(5, 3), torch.randint(0, 2, (5,))
        >>> index = distances(rb.relations.pairwise_distances(places), 2 * atoms[:, None] + atoms)
        >>> attention(torch.randn(1, 5, 64), index=index).shape
        torch.Size([1, 5, 64])
    """

    name = "gaussian_3d"
    formula = "b = MLP_h(phi), phi_k = N(a_t d + b_t; m_k, s_k), d the distance and t the type of (i, j)"
    paper = "Zhou et al. 2023, https://openreview.net/forum?id=6K2RM6wVqKu"
    relations = (Distances,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        num_kernels: int = 128,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'gaussian_3d' num_kernels", num_kernels, 1)
        self.factors = self._parameter(self.relation.num_codes)
        self.shifts = self._parameter(self.relation.num_codes)
        self.means = self._parameter(num_kernels)
        self.widths = self._parameter(num_kernels)
        # Not filled twice, so that a seed gives the same start as reset_parameters().
        like = {"device": self.device, "dtype": self._like.dtype}
        self.hidden = nn.utils.skip_init(nn.Linear, num_kernels, num_kernels, **like)
        self.out = nn.utils.skip_init(nn.Linear, num_kernels, num_heads, **like)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        super().reset_parameters()
        nn.init.ones_(self.factors)
        nn.init.zeros_(self.shifts)
        nn.init.uniform_(self.means, 0.0, 3.0)
        nn.init.uniform_(self.widths, 0.0, 3.0)
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def forward(self, index: DistancesIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        # Converted once and not for each block of rows, so that the gradients of blocks add up before they are rounded.
        dtype = torch.promote_types(self.means.dtype, torch.float32)
        factors, shifts, means = (p.to(dtype) for p in (self.factors, self.shifts, self.means))
        widths = self.widths.to(dtype).abs() + _EPS
        weights = [p.to(dtype) for p in (self.hidden.weight, self.hidden.bias, self.out.weight, self.out.bias)]
        (batch, _), (n, m) = index.batch_heads, index.shape

        def bias(rows: slice) -> Tensor:
            types = index.codes(rows)[:, 0]
            places = factors.index_select(0, types.flatten()).view(types.shape) * index.distances(rows).to(
                dtype
            ) + shifts.index_select(0, types.flatten()).view(types.shape)
            squares = ((places[..., None] - means) / widths) ** 2
            return head_mlp(torch.exp(-0.5 * squares) / (math.sqrt(2.0 * math.pi) * widths), *weights)

        # The kernels, their exponents and the hidden layer.
        return Terms(b=lambda rows: in_row_blocks(bias, rows, n, 3 * batch * m * len(means)), index=index)

    def zero_(self) -> None:
        """Set the network's last layer to zero."""
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
