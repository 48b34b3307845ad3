"""The index of a call that was given none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from relbias.encodings.absolute import default_index
from relbias.relations import Index, Relation, Sequence


def resolve_index(
    relation: Relation | Mapping[str, Relation],
    index: Index | Mapping[str, Index] | None,
    n: int,
    m: int,
    positions: Tensor | None,
    key_positions: Tensor | None,
    cross: bool,
) -> Any:
    """The index that an encoding is called with.

    Args:
        relation: the encoding's, or a mapping for a mapping of encodings.
        index: what the caller gave.
        n: N.
        m: M.
        positions: (N,) or (B, N) integers, the queries' positions, or None.
        key_positions: (M,) or (B, M) integers, the keys' positions, or None.
        cross: whether the keys are of another sequence, so that there is nothing to infer.

    Returns:
        An index, or for a mapping of relations a mapping with the same keys.

    Raises:
        ValueError: an index is needed and missing, does not fit, or is given twice over.
    """
    if isinstance(relation, Mapping):
        given = {} if index is None else index
        if not isinstance(given, Mapping):
            raise ValueError(f"several relations take a mapping of indices with keys from {sorted(relation)}")
        unknown = sorted(given.keys() - relation.keys())
        if unknown:
            raise ValueError(f"there is no relation {unknown[0]!r}; the relations are {sorted(relation)}")
        # Positions are for the inferred indices; those given have their own.
        return {
            key: given[key] if key in given else resolve_index(r, None, n, m, positions, key_positions, cross)
            for key, r in relation.items()
        }
    if isinstance(index, Mapping):
        raise ValueError(f"one relation takes one index, got a mapping with the keys {sorted(index)}")
    if index is not None:
        if positions is not None:
            raise ValueError(
                "both index and positions were given; give the positions to the relation that makes the index"
            )
        return index
    if cross:
        raise ValueError(
            "attention to a context needs an explicit index; pass index=relation(...) of its N queries and M keys"
        )
    if positions is not None:
        if not isinstance(relation, Sequence):
            raise ValueError(f"positions are of a Sequence, and the relation is {relation!r}; pass index= instead")
        return relation(n, m, positions, key_positions)
    return default_index(relation, n, m)
