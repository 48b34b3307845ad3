"""A code for each combination of the codes of several relations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import ALL_ROWS, Index, Relation
from relbias.relations.several import check_relations, made_indices


@dataclass(frozen=True)
class Product(Relation):
    """Several relations at once: the time between two notes and their voices, for example.

    With relations of R_1 ... R_n codes the code of a pair is (... (r_1 R_2 + r_2) R_3 + ...) + r_n, so there are
    R_1 R_2 ... R_n. Where encodings over the relations are summed, each relation adds what it adds whatever the others
    are; one over their product has a number of its own for each combination.

    Args:
        relations: each with a limited number of codes.

    Raises:
        ValueError: there is no relation, or one has a code for every integer.

    Example:
        >>> from relbias.relations import Labels, Sequence
        >>> product = Product((Sequence(max_distance=1), Labels(2)))
        >>> product.num_codes
        12
        >>> product(Sequence(max_distance=1)(2), torch.tensor([0, 1])).codes()[0, 0]
        tensor([[4, 9],
                [2, 7]])
    """

    relations: tuple[Relation, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "relations", tuple(self.relations))
        if not self.relations:
            raise ValueError("Product takes at least one relation, got none")
        check_relations("Product", self.relations)

    @property
    def num_codes(self) -> int:
        return math.prod(relation.num_codes or 0 for relation in self.relations)

    @property
    def index_type(self) -> type[ProductIndex]:
        return ProductIndex

    @property
    def code_space(self) -> tuple[Any, ...]:
        return tuple((relation.index_type, relation.code_space) for relation in self.relations)

    def __call__(self, *indices: Any) -> ProductIndex:
        """The index of one call.

        Args:
            *indices: for each relation an index that it made, or what it makes one from, such as a tensor of labels.

        Raises:
            ValueError: a number, kind or size of indices that does not fit.
        """
        return ProductIndex(made_indices("Product", self.relations, indices))


@dataclass(frozen=True)
class ProductIndex(Index):
    """Several indices of one call, read together. Made by calling a :class:`Product`.

    Args:
        indices: of the same N queries and M keys.
    """

    indices: tuple[Index, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.indices[0].shape

    @property
    def batch_heads(self) -> tuple[int, int]:
        return max(index.batch_heads[0] for index in self.indices), max(index.batch_heads[1] for index in self.indices)

    @property
    def of_sizes(self) -> bool:
        return all(index.of_sizes for index in self.indices)

    @property
    def num_codes(self) -> int:
        return math.prod(index.num_codes or 0 for index in self.indices)

    @property
    def code_space(self) -> tuple[Any, ...]:
        return tuple((type(index), index.code_space) for index in self.indices)

    def codes(self, rows: slice = ALL_ROWS, device: torch.device | None = None) -> Tensor:
        codes = torch.zeros((), dtype=torch.int64, device=device)
        for index in self.indices:
            own = index.codes(rows, device)
            codes = codes.to(own.device) * (index.num_codes or 0) + own
        return codes

    @property
    def T(self) -> ProductIndex:
        return ProductIndex(tuple(index.T for index in self.indices))

    def to(self, device: torch.device | str) -> ProductIndex:
        return ProductIndex(tuple(index.to(device) for index in self.indices))
