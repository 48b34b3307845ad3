"""Relations written down in plain values, for the settings of an attached model, and read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from relbias._nearest import nearest
from relbias.relations import (
    Distances,
    EdgePaths,
    EdgeTypes,
    Grid,
    Hops,
    Pairs,
    RandomWalks,
    Relation,
    Resistances,
    Sequence,
)

_RELATIONS: dict[str, Any] = {
    relation.__name__: relation
    for relation in (Sequence, Grid, Pairs, Hops, EdgePaths, EdgeTypes, RandomWalks, Resistances, Distances)
}


def describe_relation(relation: Relation) -> dict[str, Any]:
    """The relation's class by its name, and its arguments.

    Args:
        relation: of one of the classes that `as_relation` knows.

    Raises:
        ValueError: it is of another class.

    Example:
        >>> describe_relation(Sequence(max_distance=8))
        {'name': 'Sequence', 'max_distance': 8}
    """
    _check_known(relation)
    arguments = {name: getattr(relation, name) for name in _arguments(type(relation))}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()}
    return {"name": type(relation).__name__, **plain}


def as_relation(given: Any) -> Relation:
    """The relation that is given, or described as by `describe_relation`.

    Args:
        given: a Sequence, Grid, Pairs, Hops, EdgePaths, EdgeTypes, RandomWalks, Resistances or Distances, or a mapping
            with its name and arguments.

    Raises:
        ValueError: it is neither, or an argument is unknown.

    Example:
        >>> as_relation({"name": "Grid", "height": 4, "width": 6})
        Grid(height=4, width=6, prefix_tokens=0, max_distance=None)
    """
    if isinstance(given, Mapping):
        arguments = dict(given)
        name = arguments.pop("name", None)
        if name not in _RELATIONS:
            raise ValueError(f"a relation's name is one of {', '.join(_RELATIONS)}, got {name!r}")
        known = _arguments(_RELATIONS[name])
        for argument in arguments:
            if argument not in known:
                raise ValueError(f"{name} has no argument {argument!r}; {nearest(argument, known)}")
        try:
            return _RELATIONS[name](**arguments)
        except TypeError:
            missing = ", ".join(argument for argument in known if argument not in arguments)
            raise ValueError(f"the relation {dict(given)!r} lacks arguments; {name} also takes {missing}") from None
    _check_known(given)
    return given


def _arguments(cls: type[Relation]) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init]  # ty: ignore[invalid-argument-type]


def _check_known(relation: Any) -> None:
    if type(relation) not in _RELATIONS.values():
        raise ValueError(f"a relation is one of {', '.join(_RELATIONS)}, or a mapping with its name; got {relation!r}")
