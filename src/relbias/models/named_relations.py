"""Which of the relations that a model knows by name its encoding is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relbias._nearest import nearest
from relbias.encodings import Encoding
from relbias.encodings.base import find_encoding
from relbias.relations import Relation


def choose_relations(encoding: Any, relations: Mapping[str, Relation], what: str) -> Any:
    """The relations that a mapping of encodings is to be over; one encoding alone is over offsets of tokens.

    Args:
        encoding: as the user gave it.
        relations: by key.
        what: the relations are between, for messages.

    Returns:
        A mapping from the keys of the encoding's to relations; None where it is not a mapping.

    Raises:
        ValueError: an unknown key, an encoding that is applied at the input, or a built one over other relations.
    """
    if isinstance(encoding, Encoding):
        given = encoding.relation
        if isinstance(given, Mapping) and any(
            key not in relations or type(each) is not type(relations[key]) for key, each in given.items()
        ):
            raise ValueError(f"a built encoding of {what} is over some of {_kinds(relations)}, got {_kinds(given)}")
        return None
    if not isinstance(encoding, Mapping):
        return None
    for key, spec in encoding.items():
        if key not in relations:
            raise ValueError(f"there is no relation of {what} {key!r}; {nearest(str(key), relations)}")
        if hasattr(find_encoding(spec) if isinstance(spec, str) else spec, "embed"):
            raise ValueError(f"{spec!r} is applied at the input and cannot be one of several encodings; give it alone")
    return {key: relations[key] for key in encoding}


def _kinds(relations: Mapping[str, Relation]) -> str:
    return ", ".join(f"{key}: {type(relation).__name__}" for key, relation in relations.items())
