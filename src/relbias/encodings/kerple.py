"""KERPLE's kernels of the distance."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from relbias.encodings.offset_bias import OffsetBias
from relbias.relations import Relation

Variant = Literal["log", "power"]

_LEAST = 1e-2  # of p and a
_LARGEST_POWER = 2.0  # with which the kernel is still conditionally positive definite


class Kerple(OffsetBias):
    """Biases that are kernels of the distance with learned parameters (https://arxiv.org/abs/2205.09921).

    The variant "log" is b_ij = -p_h ln(1 + a_h |j - i|), "power" is b_ij = -a_h |j - i|^p_h. p and a are at least
    0.01, and the power p at most 2: where a parameter lies beyond, its limit is used, and the gradient at the limit
    moves the parameter, so that it can come back. In the paper all layers share the parameters; here each layer has
    its own, unless one encoding is built and given to all.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence without max_distance.
        variant: "log" or "power".
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        p: (H,), drawn uniformly from 0 to 2.
        a: (H,), drawn uniformly from 0 to 1.

    Raises:
        ValueError: there is no such variant, or the relation is clipped.

    Example:
        >>> from relbias.relations import Sequence
        >>> encoding = Kerple(num_heads=8, head_dim=64, variant="power")
        >>> terms = encoding(Sequence()(10, 20))
        >>> terms.names, terms.entries[0].b.shape  # one number per head and diagonal
        (('b',), torch.Size([8, 29]))
    """

    name = "kerple"
    formula = 'b = -p_h ln(1 + a_h |j - i|), with variant="power" b = -a_h |j - i|^p_h'
    paper = "Chi et al. 2022, https://arxiv.org/abs/2205.09921"

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        variant: Variant = "log",
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if variant not in get_args(Variant):
            raise ValueError(f"'kerple' has the variants {', '.join(get_args(Variant))}; got {variant!r}")
        self.variant = variant
        self.p, self.a = self._parameter(num_heads), self._parameter(num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give every parameter its start: p from 0 to 2, a from 0 to 1."""
        super().reset_parameters()
        nn.init.uniform_(self.p, 0.0, 2.0)
        nn.init.uniform_(self.a, 0.0, 1.0)

    def bias(self, offsets: Tensor) -> Tensor:
        shape = (-1, *[1] * offsets.ndim)
        a = _limit(self.a, None).view(shape)
        p = _limit(self.p, _LARGEST_POWER if self.variant == "power" else None).view(shape)
        distances = offsets.abs().double()
        return -a * distances**p if self.variant == "power" else -p * torch.log1p(a * distances)


def _limit(parameter: Tensor, largest: float | None) -> Tensor:
    """The parameter in float64, within its limits; the gradient passes as if there were none."""
    exact = parameter.double()
    return exact + (exact.clamp(_LEAST, largest) - exact).detach()
