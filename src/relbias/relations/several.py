"""What relations that are made of several others have in common."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any

from relbias.relations.base import Index, Relation


def check_relations(name: str, relations: Items[Relation]) -> None:
    """Raise ValueError unless each relation has a limited number of codes; `name` is that of what they make up."""
    for relation in relations:
        if relation.num_codes is None:
            raise ValueError(f"{name} takes relations with a limited number of codes, got {relation!r}")


def made_indices(name: str, relations: Items[Relation], indices: Items[Any]) -> tuple[Index, ...]:
    """The indices of one call, one for each relation.

    Args:
        name: of what the relations make up, for messages.
        relations: each with a limited number of codes.
        indices: for each relation an index that it made, or what it makes one from, such as a tensor of distances.

    Raises:
        ValueError: a number, kind or size of indices that does not fit.
    """
    if len(indices) != len(relations):
        raise ValueError(f"{name} takes an index for each of its {len(relations)} relations, got {len(indices)}")
    made = tuple(
        index if isinstance(index, Index) else relation(index)
        for relation, index in zip(relations, indices, strict=True)
    )
    for relation, index in zip(relations, made, strict=True):
        if not isinstance(index, relation.index_type) or index.code_space != relation.code_space:
            raise ValueError(
                f"{name} takes an index made by {relation!r}, got a {type(index).__name__} "
                f"with the codes {index.code_space}"
            )
    sizes = [(index.batch_heads[0], *index.shape) for index in made]
    largest = max(batch for batch, _, _ in sizes)
    if any(batch not in (1, largest) or shape != list(sizes[0][1:]) for batch, *shape in sizes):
        raise ValueError(f"the indices of {name} need the same sizes (batch, queries, keys), got {sizes}")
    return made
