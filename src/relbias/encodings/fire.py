"""FIRE's functional interpolation of the distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_number, check_size
from relbias.terms import Terms

_EPS = 1e-6  # added to the normaliser


class Fire(Encoding):
    """A learned function of the distance relative to the query's position (https://arxiv.org/abs/2310.04418).

    b_ij = f_h(y_ij), y_ij = ln(1 + |c (j - i)|) / (ln(1 + |c max(L, i)|) + 1e-6), where i is the position of the query,
    counted from 0, f is a network with one hidden layer of rectified units, and c and L = `threshold` times a factor
    are learned. Up to position L the bias depends on the distance alone; farther on, it stretches with the sequence.

    The method is made for causal attention, where y is from 0 to 1. For the keys after the query the distance is
    |j - i| too, as in the paper's listing, and y may be above 1.

    f is piecewise linear in y, so it is evaluated from its `width` + 1 pieces: a lookup for each pair, never `width`
    numbers for each pair.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        width: of the hidden layer, in units.
        threshold: the start of L, in positions.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        hidden: the linear map from 1 to `width`, drawn as torch draws one.
        out: the linear map from `width` to H, likewise.
        c: (), 0.1 at the start.
        threshold_factor: (), 1 at the start.

    Raises:
        ValueError: `width` or `threshold` is not positive, or the relation is clipped.

    Example:
        >>> encoding = Fire(num_heads=8, head_dim=64)
        >>> encoding(Sequence()(10)).names
        ('b',)
    """

    name = "fire"
    formula = "b = f_h(ln(1 + c |j - i|) / ln(1 + c max(L, i)))"
    paper = "Li et al. 2024, https://arxiv.org/abs/2310.04418"
    relations = (Sequence,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        width: int = 32,
        threshold: float = 512.0,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'fire' width", width, 1)
        check_number("'fire' threshold", threshold, 0, above=True)
        if self.relation.max_distance is not None:
            raise ValueError(
                f"'fire' is a function of the distance and takes Sequence() unclipped, got {self.relation!r}"
            )
        self.threshold = threshold
        # Not filled twice, so that a seed gives the same start as reset_parameters().
        like = {"device": self.device, "dtype": self._like.dtype}
        self.hidden = nn.utils.skip_init(nn.Linear, 1, width, **like)
        self.out = nn.utils.skip_init(nn.Linear, width, num_heads, **like)
        self.c, self.threshold_factor = self._parameter(), self._parameter()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        super().reset_parameters()
        self.hidden.reset_parameters()
        self.out.reset_parameters()
        nn.init.constant_(self.c, 0.1)
        nn.init.ones_(self.threshold_factor)

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        # Made once and not for each block of rows, so that the gradients of blocks add up before they are rounded.
        kinks, slopes, offsets = self._pieces()
        c, limit = self.c.double(), (self.threshold * self.threshold_factor.double()).abs()

        def bias(rows: slice) -> Tensor:
            y = _relative_distances(index, rows, c, limit).to(slopes.dtype)
            piece = torch.bucketize(y.detach(), kinks).flatten()
            shape = (len(slopes), *y.shape)
            values = slopes.index_select(1, piece).view(shape) * y + offsets.index_select(1, piece).view(shape)
            return values.transpose(0, 1)

        return Terms(b=bias)

    def _pieces(self) -> tuple[Tensor, Tensor, Tensor]:
        """The network as a piecewise linear function, at least in float32.

        Returns:
            The kinks, where a unit turns on or off, (`width`,) from low to high, and for each head and each piece
            between two of them slope and offset, (H, `width` + 1) each.
        """
        dtype = torch.promote_types(self.c.dtype, torch.float32)
        weight, bias, out = self.hidden.weight[:, 0].to(dtype), self.hidden.bias.to(dtype), self.out.weight.to(dtype)
        # A unit whose weight is 0 has no kink.
        kinks, order = torch.where(weight == 0, torch.inf, -bias / weight).detach().sort()
        weight, bias, out = weight[order], bias[order], out[:, order]
        units, pieces = torch.arange(len(weight), device=self.device), torch.arange(len(weight) + 1, device=self.device)
        # Piece p lies right of the first p kinks; there a unit that rises is on, and one that falls is off.
        right = units < pieces[:, None]
        on = torch.where(weight > 0, right, torch.where(weight < 0, ~right, bias > 0)).to(dtype)
        with without_autocast(weight):
            slopes, offsets = out @ (on * weight).mT, out @ (on * bias).mT
        return kinks, slopes, offsets + self.out.bias.to(dtype)[:, None]

    def zero_(self) -> None:
        """Set the network's last layer to zero."""
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)


def _relative_distances(index: SequenceIndex, rows: slice, c: Tensor, limit: Tensor) -> Tensor:
    """The distances y of some rows relative to the query's position or L, (B or 1, n, M) float64.

    Args:
        index: of N queries and M keys.
        rows: the queries asked for, n of N.
        c: () float64.
        limit: L, () float64, in positions.
    """
    queries, keys = index.positions(c.device)
    queries, keys = queries[:, rows, None], keys[:, None, :]
    # In the transposed index the relation is that of (j, i), whose query is the key.
    positions = queries if index.sign == 1 else -keys
    normalisers = torch.log1p((c * torch.maximum(positions.double(), limit)).abs()) + _EPS
    return torch.log1p((c * (keys - queries).double()).abs()) / normalisers
