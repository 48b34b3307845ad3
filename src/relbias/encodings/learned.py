"""Learned absolute positions added at the input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.absolute import AbsoluteEncoding
from relbias.encodings.resize import Unit, check_unit, differ_in_size_alone, read_between
from relbias.relations import Grid, GridIndex, Relation, Sequence, SequenceIndex
from relbias.relations.base import can_check_values, check_size


class Learned(AbsoluteEncoding):
    """A learned vector per absolute position, added to the tokens (as in BERT and ViT, https://arxiv.org/abs/2010.11929).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence or a Grid.
        max_length: on a sequence the number of positions; a grid has one for each of its tokens.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        table: (max_length or P + H W, H D), drawn with a standard deviation of 0.02.

    Raises:
        ValueError: a sequence without max_length, or a grid with it.

    Example:
        >>> from relbias.relations import Grid
        >>> encoding = Learned(num_heads=3, head_dim=64, relation=Grid(14, 14, prefix_tokens=1))
        >>> encoding.embed(torch.zeros(2, 197, 192)).shape
        torch.Size([2, 197, 192])
    """

    name = "learned"
    formula = "x + table[p] at the input"
    paper = "Gehring et al. 2017, https://arxiv.org/abs/1705.03122"
    extrapolation = "none"
    fixed_size = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        max_length: int | None = None,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        if isinstance(self.relation, Sequence):
            if max_length is None:
                raise ValueError("'learned' on a sequence needs max_length, the number of positions")
            check_size("'learned' max_length", max_length, 1)
            length = max_length
        elif max_length is not None:
            raise ValueError(f"'learned' on {self.relation!r} has one vector per token; leave out max_length")
        else:
            length = self.relation().shape[0]
        self.table = self._parameter(length, self.dim)
        self.reset_parameters()

    def positions(self, index: SequenceIndex | GridIndex) -> Tensor:
        device = self.table.device
        if isinstance(index, GridIndex):
            p, (y, x) = index.prefix_tokens, index.coordinates(device).unbind(-1)
            width = self.relation.width
            if index.height > self.relation.height or index.width > width:
                raise ValueError(f"a {index.height}x{index.width} grid exceeds {self.relation!r}; `resize` the table")
            patches = (p + y * width + x).view(index.batch_heads[0], -1)
            rows = torch.cat((torch.arange(p, device=device).expand(len(patches), p), patches), dim=1)
        else:
            rows, _ = index.positions(device)
            if index.query_positions is None and index.shape[1] > len(self.table):
                raise ValueError(f"'learned' has {len(self.table)} positions, got {index.shape[1]} tokens")
            if (
                can_check_values(rows)
                and rows.numel()
                and not 0 <= int(rows.min()) <= int(rows.max()) < len(self.table)
            ):
                raise ValueError(
                    f"'learned' has positions 0 to {len(self.table) - 1}, got {int(rows.min())} to {int(rows.max())}"
                )
        return nn.functional.embedding(rows, self.table)

    def resize(self, relation: Relation, unit: Unit = "patch") -> None:
        """Give the tokens of another size of the grid vectors, in place. The table is a new parameter.

        Args:
            relation: the Grid with another height and width.
            unit: what a vector keeps: with "patch" its place in patches, and patches beyond the old grid start with
                the vector of the nearest one; with "image" its part of the image, read cubically between the centres
                of patches. Vectors of prefix tokens are kept.

        Raises:
            ValueError: the unit is unknown, or the relation is not another size of the table's grid.
        """
        check_unit(unit)
        old = self.relation
        if not isinstance(old, Grid) or not isinstance(relation, Grid) or not differ_in_size_alone(old, relation):
            raise ValueError(f"'learned' over {old!r} takes another height and width of a grid, got {relation!r}")
        prefix, patches = self.table.detach().tensor_split([old.prefix_tokens])
        patches = patches.unflatten(0, old.sizes)
        for axis, (size, new_size) in enumerate(zip(old.sizes, relation.sizes, strict=True)):
            places = torch.arange(new_size, device=self.device)
            if unit == "patch":
                patches = patches.index_select(axis, places.clamp(max=size - 1))
            else:
                patches = read_between(patches, axis, (places.double() + 0.5) * size / new_size - 0.5)
        table = torch.cat((prefix, patches.flatten(0, 1)))
        self.table = nn.Parameter(table, requires_grad=self.table.requires_grad)
        self.relation = relation

    def zero_(self) -> None:
        """Set the table to zero."""
        nn.init.zeros_(self.table)
