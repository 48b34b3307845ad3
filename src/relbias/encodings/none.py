"""No encoding."""

from __future__ import annotations

from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.relations import Index
from relbias.terms import Terms


class NoEncoding(Encoding):
    """Attention without any relation (NoPE, https://arxiv.org/abs/2305.19466): no terms.

    Args:
        num_heads: H.
        head_dim: D.
        relation: any.
        strength: has nothing to act on.
        device: of nothing.
        dtype: of nothing.

    Example:
        >>> from relbias.relations import Sequence
        >>> NoEncoding(num_heads=2, head_dim=8)(Sequence()(5)).names
        ()
    """

    name = "none"
    formula = "no terms"
    paper = "Kazemnejad et al. 2023, https://arxiv.org/abs/2305.19466"
    offsets_only = True

    def forward(self, index: Index, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms()

    def zero_(self) -> None:
        """Nothing to do: there are no terms."""
