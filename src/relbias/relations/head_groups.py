"""A relation of its own for each group of heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation, check_size
from relbias.relations.several import check_relations, made_indices


@dataclass(frozen=True)
class HeadGroups(Relation):
    """Several relations, each read by some of the heads.

    The codes of a head are those of its relation. There are as many as the largest of the relations has, so that a
    table with a row per head and code serves all.

    Args:
        relations: each with a limited number of codes.
        heads: for each relation how many heads read it, in the order of the heads.

    Raises:
        ValueError: there is no relation, a number of heads is missing or not positive, or a relation has a code for
            every integer.

    Example:
        >>> from relbias.relations import Hops, Pairs
        >>> groups = HeadGroups((Hops(2), Pairs(7)), heads=(1, 3))
        >>> groups.num_codes
        7
        >>> index = groups(Hops(2)(torch.tensor([[0, 1], [1, 0]])), Pairs(7)(torch.tensor([[6, 4], [5, 6]])))
        >>> index.codes()[0, :2]
        tensor([[[0, 1],
                 [1, 0]],
        <BLANKLINE>
                [[6, 4],
                 [5, 6]]])
    """

    relations: tuple[Relation, ...]
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "relations", tuple(self.relations))
        object.__setattr__(self, "heads", tuple(self.heads))
        if not self.relations or len(self.relations) != len(self.heads):
            raise ValueError(
                f"HeadGroups takes relations and for each a number of heads, got {len(self.relations)} relations "
                f"and {len(self.heads)} numbers"
            )
        for heads in self.heads:
            check_size("each of HeadGroups' heads", heads, 1)
        check_relations("HeadGroups", self.relations)

    @property
    def num_heads(self) -> int:
        """H, the heads of all groups together."""
        return sum(self.heads)

    @property
    def num_codes(self) -> int:
        return max(relation.num_codes or 0 for relation in self.relations)

    @property
    def index_type(self) -> type[HeadGroupsIndex]:
        return HeadGroupsIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return tuple((r.index_type, r.code_space, h) for r, h in zip(self.relations, self.heads, strict=True))

    def __call__(self, *indices: Any) -> HeadGroupsIndex:
        """The index of one call.

        Args:
            *indices: for each relation an index that it made, or what it makes one from, such as a tensor of distances.

        Raises:
            ValueError: a number, kind or size of indices that does not fit.
        """
        made = made_indices("HeadGroups", self.relations, indices)
        for relation, index, heads in zip(self.relations, made, self.heads, strict=True):
            if index.batch_heads[1] not in (1, heads):
                raise ValueError(
                    f"the index of {relation!r} has codes for {index.batch_heads[1]} heads, and {heads} read it"
                )
        return HeadGroupsIndex(made, self.heads)


@dataclass(frozen=True)
class HeadGroupsIndex(Index):
    """Several indices of one call, each read by some of the heads. Made by calling a :class:`HeadGroups`.

    Args:
        indices: of the same N queries and M keys.
        heads: for each index how many heads read it.
    """

    indices: tuple[Index, ...]
    heads: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.indices[0].shape

    @property
    def batch_heads(self) -> tuple[int, int]:
        return max(index.batch_heads[0] for index in self.indices), sum(self.heads)

    @property
    def num_codes(self) -> int:
        return max(index.num_codes or 0 for index in self.indices)

    @property
    def code_space(self) -> tuple[Any, ...]:
        return tuple((type(i), i.code_space, h) for i, h in zip(self.indices, self.heads, strict=True))

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        batch, _ = self.batch_heads
        groups = (index.codes(rows, device) for index in self.indices)
        return torch.cat([g.expand(batch, h, *g.shape[2:]) for g, h in zip(groups, self.heads, strict=True)], dim=1)

    @property
    def T(self) -> HeadGroupsIndex:
        return HeadGroupsIndex(tuple(index.T for index in self.indices), self.heads)

    def to(self, device: torch.device | str) -> HeadGroupsIndex:
        return HeadGroupsIndex(tuple(index.to(device) for index in self.indices), self.heads)
