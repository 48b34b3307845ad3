"""From a name, a mapping or a callable to an encoding."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Dict, TypeAlias, Union  # noqa: UP035  (jsonargparse shows these types to users)

from relbias._nearest import nearest
from relbias.encodings.base import Encoding, find_encoding
from relbias.encodings.sum import EncodingSum
from relbias.relations import Relation, Sequence

EncodingFactory: TypeAlias = Callable[[int, int, Relation], Encoding]
EncodingSpec: TypeAlias = Union[str, Dict[str, Union[str, EncodingFactory]], EncodingFactory]  # noqa: UP006, UP007
"""A name, a mapping from relations to names or callables, or a callable that is given H, D and the relation."""


def create_encoding(
    spec: EncodingSpec | Encoding,
    num_heads: int,
    head_dim: int,
    relation: Relation | Mapping[str, Relation] | None = None,
    **options: Any,
) -> Encoding:
    """Build an encoding.

    Args:
        spec: the name of an encoding; or a mapping of such, one for each relation, whose terms are summed; or a class
            or other callable that is given (num_heads, head_dim, relation); or an encoding already built, which is
            returned as it is, to be shared.
        num_heads: H.
        head_dim: D.
        relation: the relation, Sequence() by default. For a mapping of encodings a mapping of relations, where an
            absent key is Sequence(), or one relation for all.
        **options: of the encoding's class, with a name or a class; see its documentation.

    Returns:
        The encoding.

    Raises:
        ValueError: no such encoding or option (the message names the nearest), or a built encoding of another size.

    Example:
        >>> import relbias as rb
        >>> rb.create_encoding("shaw", num_heads=8, head_dim=64, max_distance=8)
        Shaw(num_heads=8, head_dim=64, relation=Sequence(max_distance=None))
    """
    if isinstance(spec, Mapping):
        return _create_sum(spec, num_heads, head_dim, relation, options)
    if isinstance(relation, Mapping):
        raise ValueError(f"one encoding needs one relation, got a mapping with the keys {sorted(relation)}")
    if isinstance(spec, Encoding):
        _refuse_options(options, "an encoding that is already built")
        if (spec.num_heads, spec.head_dim) != (num_heads, head_dim):
            raise ValueError(
                f"{spec.label} was built for {spec.num_heads} heads of {spec.head_dim}, "
                f"needed are {num_heads} of {head_dim}"
            )
        return spec
    factory: Any = find_encoding(spec) if isinstance(spec, str) else spec
    if inspect.isclass(factory):
        _check_options(factory, options)
    elif not callable(factory):
        raise ValueError(f"an encoding is a name, a mapping, a callable or a built encoding; got {spec!r}")
    encoding = factory(num_heads, head_dim, Sequence() if relation is None else relation, **options)
    if not isinstance(encoding, Encoding):
        raise ValueError(f"{factory!r} must return an Encoding, got {type(encoding).__name__}")
    return encoding


def _create_sum(
    specs: Mapping[str, Any],
    num_heads: int,
    head_dim: int,
    relation: Relation | Mapping[str, Relation] | None,
    options: dict[str, Any],
) -> EncodingSum:
    _refuse_options(options, "a mapping of encodings; give a callable with them")
    relations = relation if isinstance(relation, Mapping) else dict.fromkeys(specs, relation)
    unknown = sorted(relations.keys() - specs.keys())
    if unknown:
        raise ValueError(f"there are relations for {unknown} and encodings for {sorted(specs)}; the keys must agree")
    return EncodingSum(
        {key: create_encoding(spec, num_heads, head_dim, relations.get(key)) for key, spec in specs.items()}
    )


def _refuse_options(options: dict[str, Any], what: str) -> None:
    if options:
        raise ValueError(f"the options {sorted(options)} do not apply to {what}")


def _check_options(cls: type[Encoding], options: dict[str, Any]) -> None:
    parameters = inspect.signature(cls).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = [name for name in parameters if name not in ("num_heads", "head_dim", "relation")]
    for name in options:
        if name not in known:
            raise ValueError(f"{cls.__name__} has no option {name!r}; {nearest(name, known)}")
