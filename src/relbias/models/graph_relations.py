"""The relations between nodes that a graph transformer knows by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relbias._nearest import nearest
from relbias.encodings import Encoding, NoEncoding
from relbias.encodings.base import find_encoding
from relbias.relations import Distances, EdgePaths, EdgeTypes, GraphRelation, Hops, RandomWalks, Relation, Resistances

Relations = Mapping[str, Callable[[], Relation]]


def graph_relations(
    *,
    max_hops: int,
    path_edges: int,
    walk_steps: int,
    edge_types: list[int] | None,
    edge_features: int | None,
    prefix_tokens: int,
) -> Relations:
    """What makes each relation, by its key in a mapping of encodings."""

    def types() -> Relation:
        if edge_features is not None:
            raise ValueError(
                "an encoding over 'edge_types' needs edges of categories; give edge_types, not edge_features"
            )
        return EdgeTypes((edge_types or [1])[0], prefix_tokens)

    def paths() -> Relation:
        types = None if edge_features is not None else edge_types or [1]
        return EdgePaths(types, path_edges, prefix_tokens, num_features=edge_features)

    return {
        "hops": lambda: Hops(max_hops, prefix_tokens, one_prefix_code=True),
        "edges": paths,
        "edge_types": types,
        "walks": lambda: RandomWalks(walk_steps, prefix_tokens),
        "resistance": lambda: Resistances(prefix_tokens),
        "distances": lambda: Distances(prefix_tokens=prefix_tokens),
    }


def choose_relation(encoding: Any, relations: Relations) -> Any:
    """The relation that an encoding is to be over, a mapping of them, or None for one that has its own.

    Args:
        encoding: as the user gave it; one given by name alone is over hops.
        relations: by key.

    Raises:
        ValueError: an unknown key, or an encoding that is applied at the input.
    """
    if isinstance(encoding, Encoding):
        return None
    several = isinstance(encoding, Mapping)
    for key, spec in encoding.items() if several else [("hops", encoding)]:
        if key not in relations:
            raise ValueError(f"there is no relation of graphs {key!r}; {nearest(str(key), relations)}")
        if hasattr(find_encoding(spec) if isinstance(spec, str) else spec, "embed"):
            raise ValueError(f"{spec!r} is applied at the input, by the place of a token, and nodes have no order")
    return {key: relations[key]() for key in encoding} if several else relations["hops"]()


def relation_of(encoding: Encoding, prefix_tokens: int) -> Any:
    """The relation of an encoding as it was built, or a mapping of them; None where it needs none.

    Raises:
        ValueError: it cannot be made from graphs, or has other prefix tokens.
    """
    if isinstance(encoding, NoEncoding):
        return None
    several = isinstance(encoding.relation, Mapping)
    for relation in encoding.relation.values() if several else [encoding.relation]:
        if not isinstance(relation, GraphRelation):
            raise ValueError(f"{encoding.label} is over {relation!r}, which cannot be made from graphs; use Hops")
        given = getattr(relation, "prefix_tokens", 0)
        if given != prefix_tokens:
            raise ValueError(
                f"{encoding.label} is over {relation!r} of {given} prefix tokens, and the model has {prefix_tokens}; "
                f"build it with prefix_tokens={prefix_tokens}"
            )
    return encoding.relation


def reads_edges(relation: Any) -> bool:
    """Whether a relation, or one of a mapping, is made from what is known of edges."""
    relations = relation.values() if isinstance(relation, Mapping) else [relation]
    return any(isinstance(each, EdgeTypes | EdgePaths) for each in relations)
