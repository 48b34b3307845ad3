"""The places in a host that get an encoding, and what is built for which."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from relbias.encodings import Encoding, EncodingSpec, create_encoding
from relbias.encodings.absolute import AbsoluteEncoding, InputEncoding
from relbias.encodings.base import find_encoding
from relbias.relations import Relation


@dataclass(frozen=True)
class Site:
    """An attention module of a host.

    Args:
        module: the attention module.
        swapped: the class that takes the place of the module's class, a subclass of it whose attribute `host_class`
            is the module's class; it finds its encoding at `self.encoding`.
        num_heads: H.
        head_dim: D.
        weight: a parameter that tells the dtype and device of the encoding.
        relation: of the tokens that meet in it; a mapping of relations for a mapping of encodings.
        value_dim: the size of a head's values; D by default.
        group: what else sites that share an encoding have in common, where a host has sites whose relations are equal
            by chance.
    """

    module: nn.Module
    swapped: type[nn.Module]
    num_heads: int
    head_dim: int
    weight: Tensor
    relation: Relation | Mapping[str, Relation]
    value_dim: int | None = None
    group: Any = None


def places(
    encoding: Any, sites: Sequence[Site], tokens: Site | None
) -> list[tuple[EncodingSpec | Encoding, Sequence[Site]]]:
    """What is built at which sites: a conditional encoding at the tokens, the rest in attention.

    Args:
        encoding: as in `attach`.
        sites: in attention.
        tokens: the one of tokens, if the host has it.
    """
    if tokens is None:
        return [(encoding, sites)]
    if not isinstance(encoding, Mapping):
        return [(encoding, [tokens] if is_conditional(encoding) else sites)]
    conditional = [key for key, spec in encoding.items() if is_conditional(spec)]
    if len(conditional) != 1:
        return [(encoding, sites)]
    rest = {key: spec for key, spec in encoding.items() if key not in conditional}
    return [(encoding[conditional[0]], [tokens]), *([(rest, sites)] if rest else [])]


def wants_tokens(encoding: Any) -> bool:
    """Whether an encoding, or one of a mapping, is conditional and so has a place among a host's tokens.

    Args:
        encoding: as in `attach`.
    """
    return any(is_conditional(spec) for spec in (encoding.values() if isinstance(encoding, Mapping) else [encoding]))


def is_conditional(spec: Any) -> bool:
    """Whether an encoding is applied to tokens, and depends on them.

    Args:
        spec: an encoding, its name or class, or a partial call of its class; of anything else the answer is no.
    """
    if isinstance(spec, str):
        spec = find_encoding(spec)
    spec = getattr(spec, "func", spec)
    cls = spec if isinstance(spec, type) else type(spec)
    return issubclass(cls, InputEncoding) and not issubclass(cls, AbsoluteEncoding)


def build(spec: Any, sites: Sequence[Site], options: Mapping[str, Any], shared: bool) -> list[Encoding]:
    """An encoding for each site; of one already built a copy for all, so that a refusal leaves it as it was.

    Args:
        spec: as in `create_encoding`.
        sites: where.
        options: of the encoding.
        shared: whether sites that are alike (heads, head size, relation, group) share an encoding.
    """
    if isinstance(spec, Encoding):
        spec = copy.deepcopy(spec)
    alike: dict[Any, Encoding] = {}
    built = []
    for site in sites:
        key = (site.num_heads, site.head_dim, site.relation, site.group) if shared else id(site)
        if key not in alike:
            alike[key] = create_encoding(spec, site.num_heads, site.head_dim, site.relation, **options)
        built.append(alike[key])
    return built
