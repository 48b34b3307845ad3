"""The relations between tokens of source code that a source transformer knows by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relbias.relations import (
    TREE_NEIGHBORS,
    Bins,
    EdgeSets,
    Hops,
    Index,
    Pairs,
    Relation,
    Sequence,
    ancestor_codes,
    between_tokens,
    depth_codes,
    fixed_bins,
    growing_values,
    neighbor_codes,
    sibling_codes,
    step_codes,
    tree_hops,
    tree_pageranks,
)
from relbias.relations.base import check_size

SIGNED_VALUES = growing_values(near=4, further=11, signed=True)
"""What the bins of signed distances stand for: the Code Transformer's 32, one of which is for what is not related."""
HOP_VALUES = growing_values(near=8, further=22)
"""What the bins of hops stand for."""
PAGERANK_VALUES = torch.linspace(0.0, 10.0, 31, dtype=torch.float64)
"""What the bins of -log(PageRank) stand for."""


@dataclass(frozen=True)
class SourceTrees:
    """The syntax trees of a batch of sources, and their edges between tokens.

    Args:
        parents: (B, V) integers, the node above each node; -1 for a root and for padding.
        node_of_token: (B, N) integers, the node of each token; -1 for padding.
        edges: (B, N, N) integers, sets of edge types.

    What no relation is made from may be None.
    """

    parents: Any
    node_of_token: Any
    edges: Any

    def between(self, codes: Callable[..., Tensor], unrelated: int, *arguments: int) -> Tensor:
        """Codes of pairs of nodes as those of the tokens that belong to them, (B, N, N)."""
        return between_tokens(codes(self.parents, *arguments), self.node_of_token, unrelated)


def code_relations(max_steps: int, max_distance: int, max_hops: int, edge_types: int) -> dict[str, Relation]:
    """Each relation, by its key in a mapping of encodings.

    Args:
        max_steps: of "tree", the most steps up or down the tree with codes of their own.
        max_distance: of "ancestor", "sibling" and "depth", the largest distance with a code of its own.
        max_hops: of "hops", likewise.
        edge_types: T, of "edges".

    Raises:
        ValueError: a negative distance, or no types of edges.
    """
    for name, size in (("max_steps", max_steps), ("max_distance", max_distance), ("max_hops", max_hops)):
        check_size(name, size, 0)
    check_size("edge_types", edge_types, 1)
    signed = Pairs(2 * max_distance + 2)
    return {
        "offset": Sequence(),
        "tree": Pairs((max_steps + 1) ** 2 + 1),
        "hops": Hops(max_hops),
        "ancestor": signed,
        "sibling": signed,
        "depth": signed,
        "neighbor": Pairs(6),
        "edges": EdgeSets(edge_types),
        "hop_bins": Bins(len(HOP_VALUES) + 1),
        "ancestor_bins": Bins(len(SIGNED_VALUES) + 1),
        "sibling_bins": Bins(len(SIGNED_VALUES) + 1),
        "pagerank_bins": Bins(len(PAGERANK_VALUES) + 1),
    }


_FARTHEST = 127
"""The largest signed distance that is told from farther ones before it goes into a bin."""


def _hops(trees: SourceTrees) -> Tensor:
    return trees.between(tree_hops, -1)


def _signed(codes: Callable[..., Tensor], trees: SourceTrees, max_distance: int) -> Tensor:
    return trees.between(codes, 2 * max_distance + 1, max_distance)


def _signed_bins(relation: Bins, codes: Callable[..., Tensor], trees: SourceTrees) -> Index:
    found = _signed(codes, trees, _FARTHEST)
    return relation(*fixed_bins(found - _FARTHEST, SIGNED_VALUES, found <= 2 * _FARTHEST))


def _hop_bins(relation: Bins, trees: SourceTrees) -> Index:
    hops = _hops(trees)
    return relation(*fixed_bins(hops, HOP_VALUES, hops >= 0))


def _pagerank_bins(relation: Bins, trees: SourceTrees) -> Index:
    values = between_tokens(tree_pageranks(trees.parents), trees.node_of_token, torch.inf)
    return relation(*fixed_bins(values, PAGERANK_VALUES, values.isfinite()))


def _distance(relation: Pairs) -> int:
    return relation.num_codes // 2 - 1


_MAKE: Mapping[str, Callable[[Any, SourceTrees], Index]] = {
    "tree": lambda relation, trees: relation(
        trees.between(step_codes, relation.num_codes - 1, math.isqrt(relation.num_codes - 1) - 1)
    ),
    "hops": lambda relation, trees: relation(_hops(trees)),
    "ancestor": lambda relation, trees: relation(_signed(ancestor_codes, trees, _distance(relation))),
    "sibling": lambda relation, trees: relation(_signed(sibling_codes, trees, _distance(relation))),
    "depth": lambda relation, trees: relation(_signed(depth_codes, trees, _distance(relation))),
    "neighbor": lambda relation, trees: relation(trees.between(neighbor_codes, TREE_NEIGHBORS.index("none"))),
    "edges": lambda relation, trees: relation(trees.edges),
    "hop_bins": _hop_bins,
    "ancestor_bins": lambda relation, trees: _signed_bins(relation, ancestor_codes, trees),
    "sibling_bins": lambda relation, trees: _signed_bins(relation, sibling_codes, trees),
    "pagerank_bins": _pagerank_bins,
}
"""What makes each index; that of "offset" is inferred."""


def code_indices(relation: Any, trees: SourceTrees) -> dict[str, Index] | None:
    """The indices of one call, by key, for a mapping of relations; None for a relation alone, which is inferred.

    Raises:
        ValueError: the tree or the edges that a relation is made from are missing, or do not fit.
    """
    if not isinstance(relation, Mapping):
        return None
    for key in relation:
        names = ("edges",) if key == "edges" else ("parents", "node_of_token") if key in _MAKE else ()
        missing = [name for name in names if getattr(trees, name) is None]
        if missing:
            raise ValueError(f"the encoding over {key!r} is made from {' and '.join(missing)}, which must be given")
    return {key: _MAKE[key](each, trees) for key, each in relation.items() if key in _MAKE}
