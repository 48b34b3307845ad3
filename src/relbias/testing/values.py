"""Random graphs, trees and features: what pairwise relations make an index of."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations import (
    Bins,
    Distances,
    EdgePaths,
    EdgeSets,
    Features,
    HeadGroups,
    Hops,
    Labels,
    Pairs,
    Product,
    RandomWalks,
    Relation,
    Resistances,
    Sequence,
)
from relbias.relations.lattice import Lattice


def random_values(relation: Relation, batch: int, n: int, m: int) -> tuple[Tensor, ...] | None:
    """Random tensors from which a pairwise relation makes an index; None for a positional relation.

    Every code, type or bin occurs in the long run. What is real is in torch's default dtype, what is an integer int64.

    Args:
        relation: one of the library's.
        batch: B.
        n: N, the number of queries of the index, with the relation's prefix tokens.
        m: M, the number of keys of the index, likewise.

    Returns:
        What the relation is called with, each a tensor with a batch axis.

    Raises:
        ValueError: the relation is not one of the library's, or a HeadGroups or Product with one that is not made from
            one tensor.

    Example:
        >>> from relbias.relations import Bins
        >>> relation = Bins(num_bins=5)
        >>> values = random_values(relation, batch=2, n=3, m=4)
        >>> [tuple(tensor.shape) for tensor in values]
        [(2, 3, 4), (2, 5)]
        >>> relation(*values).shape
        (3, 4)
    """
    prefix = getattr(relation, "prefix_tokens", 0)
    pairs = (batch, max(n - prefix, 0), max(m - prefix, 0))
    if isinstance(relation, Sequence | Lattice):
        return None
    if isinstance(relation, Pairs):
        return (torch.randint(relation.num_codes, pairs),)
    if isinstance(relation, Labels):
        return torch.randint(relation.num_labels, (batch, n)), torch.randint(relation.num_labels, (batch, m))
    if isinstance(relation, Hops):
        return (torch.randint(-1, relation.max_distance + 3, pairs),)  # also more than far
    if isinstance(relation, EdgeSets):
        return (torch.randint(2**relation.num_types, pairs),)
    if isinstance(relation, EdgePaths):
        return _random_paths(relation, batch, pairs)
    if isinstance(relation, Bins):
        return torch.randint(relation.num_bins, pairs), 10 * torch.randn(batch, relation.num_bins)
    if isinstance(relation, Distances):
        return 3 * torch.rand(pairs), torch.randint(relation.num_types, pairs)
    if isinstance(relation, RandomWalks | Resistances):
        return (torch.rand(*pairs, relation.num_given),)
    if isinstance(relation, Features):
        return (torch.randn(*pairs, relation.num_features),)
    if isinstance(relation, HeadGroups | Product):
        groups = [random_values(part, batch, n, m) for part in relation.relations]
        if all(values is not None and len(values) == 1 for values in groups):
            return tuple(values[0] for values in groups if values)
    raise ValueError(f"random_values knows no tensors for {relation!r}; give your own, in a test case by pair_values")


def _random_paths(relation: EdgePaths, batch: int, pairs: tuple[int, int, int]) -> tuple[Tensor, ...]:
    """Paths of 1 to L edges that differ from each other, of each length up to three; and none for some pairs."""
    columns, depth = relation.columns, torch.arange(relation.max_edges)
    width = min(3, columns[0]) if columns else 3
    parents = torch.randint(width, (batch, relation.max_edges, width)) + width * (depth[:, None] - 1)
    parents = parents.where(depth[:, None] > 0, -1).flatten(1)
    size = parents.shape[1]
    if columns:
        edges = torch.stack([torch.randint(types, (batch, size)) for types in columns], dim=-1)
        edges[..., 0] = (edges[:, :1, 0] + torch.arange(size)) % columns[0]  # other types than paths of the same length
        edges = edges if len(columns) > 1 else edges[..., 0]
    else:
        edges = torch.randn(batch, size, relation.num_features or 0)
    return torch.randint(-1, size, pairs), parents, edges
