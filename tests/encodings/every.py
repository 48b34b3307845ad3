"""Every encoding of the library over every kind of relation that it takes: what the tests of properties run over."""

import functools
import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

import relbias as rb
from relbias.encodings.base import find_encoding
from relbias.relations import (
    Bins,
    Distances,
    EdgePaths,
    EdgeSets,
    Features,
    Grid,
    HeadGroups,
    Hops,
    Pairs,
    Sequence,
    Volume,
)
from relbias.testing import EncodingTestCase, random_values

HEADS, HEAD_DIM = 4, 8
DIM = HEADS * HEAD_DIM
RELATIONS = (
    Sequence(),
    Sequence(max_distance=5),
    Grid(3, 4),
    Grid(3, 4, prefix_tokens=2),
    Volume(2, 2, 3),
    Volume(2, 2, 3, prefix_tokens=1),
    Pairs(5),
    Hops(3),
    Hops(3, prefix_tokens=1),
    EdgePaths(4, 3),
    EdgeSets(3),
    Bins(5),
    Distances(3),
    Features(3),
    HeadGroups((Pairs(5), Pairs(6)), heads=(1, 3)),
)
"""An encoding is tested over each of these that it takes; a clipped sequence only where it takes no other.

One that takes none of them is tested over the relations of its own tests.
"""
SMALL = {
    "ast_trans": {"sparse": False},
    "cope": {"num_positions": 4},
    "learned": {"max_length": 32},
    "music_transformer": {"max_distance": 31},
    "rope_dynamic": {"original_max_position_embeddings": 64},
    "rope_longrope": {"original_max_position_embeddings": 64},
    "shaw": {"max_distance": 4},
}
"""Options with which an encoding is built, where its defaults are larger than these tests or are not given."""
VARIANTS = {
    "alibi": ({"variant": "asymmetric"}, {"variant": "nonsymmetric", "learned": True}),
    "deberta": ({"share_att_key": True},),
    "grpe": ({"values": True},),
    "irpe": ({"mode": "bias", "rpe_on": "qk"}, {"method": "cross", "rpe_on": "qkv"}),
    "shaw": ({"values": True},),
    "transformer_xl": ({"clamp_len": 4},),
}
"""Options with other terms than the defaults have."""


@dataclass(frozen=True)
class Made:
    """An encoding over a relation."""

    name: str
    relation: Any
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({options}) over {self.relation}"

    @property
    def prefix(self) -> int:
        return getattr(self.relation, "prefix_tokens", 0)

    def encoding(self) -> Any:
        """In float64; its parameters are random and so large that they matter."""
        torch.manual_seed(0)
        encoding = rb.create_encoding(self.name, HEADS, HEAD_DIM, self.relation, **self.options).double()
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
        return encoding

    def layer(self, **arguments) -> rb.RelativeAttention:
        """In float64."""
        encoding = self.encoding()
        torch.manual_seed(1)
        return rb.RelativeAttention(DIM, HEADS, encoding, **{"implementation": "reference", **arguments}).double()

    @property
    def pairwise(self) -> bool:
        return not isinstance(self.relation, Sequence | Grid | Volume)

    def values(self, batch, tokens) -> tuple[torch.Tensor, ...] | None:
        """What a pairwise relation makes an index of, random; None for a positional one."""
        return random_values(self.relation, batch, tokens, tokens)

    def index(self, tokens, values=None) -> Any:
        """Of N tokens, or on a grid of its own, or of one patch."""
        if values is not None:
            return self.relation(*values)
        if isinstance(self.relation, Sequence):
            return self.relation(tokens)
        return self.relation() if tokens > 1 else self.relation(*[1] * len(self.relation.axes))

    def terms(self, encoding, index, layer=None) -> rb.Terms:
        """Of one call with a random input, exact in half precision."""
        x = self.input(index.shape[0]).bfloat16().half()
        dtype = next((p.dtype for p in encoding.parameters()), torch.float64)
        return encoding(index, x=x.to(dtype), attention=layer)

    def tokens(self, wanted) -> int:
        """N of a call: as wanted, where the relation leaves it open."""
        return self.relation().shape[0] if isinstance(self.relation, Grid | Volume) else wanted

    def input(self, tokens, batch=2) -> torch.Tensor:
        torch.manual_seed(2)
        return torch.randn(batch, tokens, DIM, dtype=torch.float64)


def of_items(values: tuple[torch.Tensor, ...] | None, items: Any) -> tuple[torch.Tensor, ...] | None:
    """The values of some items of a batch."""
    return None if values is None else tuple(value[items] for value in values)


def of_nodes(values: tuple[torch.Tensor, ...], nodes: Any) -> tuple[torch.Tensor, ...]:
    """The values between some nodes; what is not of pairs stays."""
    return tuple(value if value.ndim < 3 else value[:, nodes][:, :, nodes] for value in values)


def call(layer: rb.RelativeAttention, x: torch.Tensor, **arguments) -> torch.Tensor | None:
    """The output, or None where the layer's implementation, not the reference, cannot compute the terms."""
    try:
        return layer(x, **arguments)
    except ValueError as error:
        if layer.implementation == "reference" or "cannot compute this" not in str(error):
            raise
        return None


def names() -> list[str]:
    """The library's own encodings, and not those that other tests define."""
    return [name for name in rb.list_encodings() if find_encoding(name).__module__.startswith("relbias.")]


def _built(name: str, relation: Any, at_input: bool) -> Made | None:
    """The encoding over a relation, or None if it does not take it."""
    # A length is for sequences; a grid has its own.
    options = {} if at_input and not isinstance(relation, Sequence) else SMALL.get(name, {})
    made = Made(name, relation, options)
    try:
        made.encoding()
    except ValueError:
        return None
    return made


def _of_own_tests(name: str) -> list[Made]:
    """The encoding over the relations of its own tests."""
    module = find_encoding(name).__module__.rpartition(".")[2]
    own = vars(importlib.import_module(f"tests.encodings.test_{module}")).values()
    cases = [c() for c in own if isinstance(c, type) and issubclass(c, EncodingTestCase) and c is not EncodingTestCase]
    by_relation = {repr(case.relation): case for case in cases if case.encoding is find_encoding(name)}
    return [Made(name, case.relation, case.options) for case in by_relation.values()]


@functools.cache
def all_made(variants: bool = True, at_input: bool = False) -> list[Made]:
    """Every encoding over every relation that it takes."""
    found = []
    for name in names():
        if hasattr(find_encoding(name), "embed") != at_input:
            continue
        built = [made for relation in RELATIONS if (made := _built(name, relation, at_input))]
        built = built or _of_own_tests(name)
        if any(made.relation == Sequence() for made in built):
            built = [made for made in built if made.relation != Sequence(max_distance=5)]
        for made in built:
            for options in ({}, *(VARIANTS.get(name, ()) if variants else ())):
                if not ("variant" in options and isinstance(made.relation, Grid)):  # a grid has no order
                    found.append(replace(made, options=made.options | options))
    return found


def every(
    *kinds: type,
    without: Collection[str] = (),
    where: Callable[[Made], bool] = lambda made: True,
    variants: bool = True,
    at_input: bool = False,
) -> Any:
    """Parametrises a test with `made`, over the kinds of relations given, all by default, but not some names."""
    made = [
        made
        for made in all_made(variants, at_input)
        if (not kinds or isinstance(made.relation, kinds)) and made.name not in without and where(made)
    ]
    return pytest.mark.parametrize("made", made, ids=str)
