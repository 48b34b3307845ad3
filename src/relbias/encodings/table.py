"""One learned number per code and head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.resize import Unit, resize_table
from relbias.relations import Index, Relation
from relbias.terms import Terms


class Table(Encoding):
    """A table of biases over the codes of any relation, b_ij = table[h, r_ij].

    Over a `Grid` this is the relative position bias of Swin (https://arxiv.org/abs/2103.14030) and, with a class
    token, of BEiT (https://arxiv.org/abs/2106.08254); over `Hops` the spatial encoding of Graphormer
    (https://arxiv.org/abs/2106.05234).

    Args:
        num_heads: H.
        head_dim: D.
        relation: any with a limited number of codes R.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        table: (H, R), drawn with a standard deviation of 0.02.

    Raises:
        ValueError: the relation has a code for every integer, like Sequence().

    Example:
        >>> from relbias.relations import Grid
        >>> encoding = Table(num_heads=3, head_dim=64, relation=Grid(14, 14, prefix_tokens=1))
        >>> encoding.table.shape
        torch.Size([3, 732])
        >>> encoding(Grid(14, 14, prefix_tokens=1)()).names
        ('b',)
    """

    name = "table"
    formula = "b = table_h[r]"
    paper = "Liu et al. 2021, https://arxiv.org/abs/2103.14030"
    extrapolation = "none"
    fixed_size = True
    offsets_only = True

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
        if self.relation.num_codes is None:
            raise ValueError(
                f"'table' needs a relation with a limited number of codes, got {self.relation!r}; "
                "give it a limit, for example Sequence(max_distance=128)"
            )
        self.table = self._parameter(num_heads, self.relation.num_codes)
        self.reset_parameters()

    def forward(self, index: Index, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms(b=self.table, index=index)

    def resize(self, relation: Relation, unit: Unit = "patch") -> None:
        """Read the table at the codes of another size of the relation, in place. The table is a new parameter.

        Args:
            relation: a Grid or Volume with other sizes, or a Sequence with another max_distance.
            unit: what an offset keeps. With "patch" an offset of d patches (or positions) keeps its numbers, and
                those beyond the old size start as the farthest one in their direction; with "image" an offset keeps
                its numbers where it is the same part of the image, read cubically between offsets. Codes of prefix
                tokens are kept.

        Raises:
            ValueError: the unit is unknown, or the relation is not another size of the table's.

        Example:
            >>> from relbias.relations import Sequence
            >>> encoding = Table(1, 4, Sequence(max_distance=1))
            >>> encoding.table.data = torch.tensor([[3.0, 4.0, 5.0]])
            >>> encoding.resize(Sequence(max_distance=2))
            >>> encoding.table.data
            tensor([[3., 3., 4., 5., 5.]])
        """
        table = resize_table(self.table, self.relation, relation, unit)
        self.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        self.relation = relation

    def zero_(self) -> None:
        """Set the table to zero."""
        nn.init.zeros_(self.table)
