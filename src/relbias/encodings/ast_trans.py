"""AST-Trans's vectors of ancestors and siblings, each for some of the heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias.encodings.pair_vectors import PairVectors
from relbias.relations import HeadGroups, Index, Pairs, Relation
from relbias.terms import Terms


class ASTTrans(PairVectors):
    """Vectors for how two nodes of a syntax tree stand to each other (https://arxiv.org/abs/2112.01184).

    s_ij = c (q_i . k_j + q_i . K_h[r_ij] + k_j . Q_h[r_ij]), o_i = sum_j a_ij (v_j + V_h[r_ij]). Some heads read the
    ancestors, the others the siblings: a `HeadGroups` of two `Pairs`, whose codes `ancestor_codes` and `sibling_codes`
    make. The paper's c (`scale="paper"`) is 1 / sqrt(3 D).

    Two nodes that are not related, whose code is the last of their relation, do not attend to each other. Each
    head has vectors of its own; the paper's are projections, by head, of one vector for all.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a HeadGroups of Pairs for H heads, or a Pairs for all.
        values: whether to have the table V.
        sparse: whether nodes that are not related are hidden from each other; else they have a vector too.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        query_vectors: (H, R, D), K of the equation, drawn with a standard deviation of 0.02.
        key_vectors: (H, R, D), Q of the equation, likewise.
        value_vectors: (H, R, D), V of the equation, likewise, or None.

    Raises:
        ValueError: the relation is another or for another number of heads.

    Example:
        >>> import relbias as rb
        >>> distance = Pairs(2 * 3 + 2)  # up to 3
        >>> groups = HeadGroups((distance, distance), heads=(4, 4))
        >>> attention = rb.RelativeAttention(64, 8, "ast_trans", groups, scale="paper")
        >>> parents = torch.tensor([-1, 0, 0, 2])
        >>> index = groups(rb.relations.ancestor_codes(parents, 3), rb.relations.sibling_codes(parents, 3))
        >>> attention(torch.randn(1, 4, 64), index=index).shape
        torch.Size([1, 4, 64])
    """

    name = "ast_trans"
    formula = "K_h[r], Q_h[r], with values=True also V_h[r], with sparse=True b = -inf for the last r"
    paper = "Tang et al. 2022, https://arxiv.org/abs/2112.01184"
    relations = (HeadGroups, Pairs)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        values: bool = True,
        sparse: bool = True,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, values=values, strength=strength, device=device, dtype=dtype)
        self.sparse = sparse
        groups: list[Any] = [(self.relation, num_heads)]
        if isinstance(self.relation, HeadGroups):
            groups = list(zip(self.relation.relations, self.relation.heads, strict=True))
            if self.relation.num_heads != num_heads or not all(isinstance(r, Pairs) for r, _ in groups):
                raise ValueError(
                    f"{self.label} takes a HeadGroups of Pairs for {num_heads} heads, got {self.relation!r}"
                )
        self._unrelated = [(relation.num_codes - 1, heads) for relation, heads in groups]

    @property
    def paper_scale(self) -> float:
        """1 / sqrt(3 D)."""
        return (3 * self.head_dim) ** -0.5

    def forward(self, index: Index, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        terms = super().forward(index)
        if not self.sparse:
            return terms
        last = torch.cat([torch.full((heads, 1), code, device=self.device) for code, heads in self._unrelated])
        hidden = torch.arange(self.query_vectors.shape[1], device=self.device) == last
        return terms + Terms(
            b=torch.zeros_like(hidden, dtype=torch.float32).masked_fill(hidden, -torch.inf), index=index
        )

    def zero_(self) -> None:
        """Set the tables to zero.

        Raises:
            ValueError: with `sparse`, pairs are hidden whatever the tables hold.
        """
        if self.sparse:
            raise ValueError(f"{self.label} hides nodes that are not related; use sparse=False to start from nothing")
        super().zero_()
