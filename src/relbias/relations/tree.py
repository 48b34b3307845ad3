"""How two nodes of a tree stand to each other, as codes."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import check_size
from relbias.relations.tree_order import Forest, forest_of

TREE_NEIGHBORS = ("itself", "parent", "child", "next sibling", "previous sibling", "none")
"""The names of the codes of `neighbor_codes`."""


def ancestor_codes(parents: Tensor, max_distance: int, drop_far: bool = False) -> Tensor:
    """How far node j is above or below node i, on one path from the root, as codes of `Pairs(2 K + 2)`.

    The code is K + d if j is d edges below i, K - d if it is d edges above, and 2 K + 1 if neither is an ancestor of
    the other. A node is at distance 0 from itself.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.
        max_distance: K, the largest distance with a code of its own, in edges.
        drop_far: whether two nodes that are farther apart count as not related, instead of as K apart.

    Returns:
        (N, N) or (B, N, N) int16.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> ancestor_codes(torch.tensor([-1, 0, 1]), max_distance=2)  # a root, its child and its grandchild
        tensor([[2, 3, 4],
                [1, 2, 3],
                [0, 1, 2]], dtype=torch.int16)
    """
    _check_distance(max_distance)
    forest = forest_of(parents)
    depths = forest.depths.to(torch.int16)
    first, second = depths[:, :, None], depths[:, None]
    related = forest.common_depths() == torch.minimum(first, second)
    return forest.unbatched(_codes(second - first, related, max_distance, drop_far))


def sibling_codes(parents: Tensor, max_distance: int, drop_far: bool = False) -> Tensor:
    """How many siblings node j comes after node i, as codes of `Pairs(2 K + 2)`.

    The code is K + d if j is the d-th sibling after i, K - d if it is the d-th before, in the order of the nodes, and
    2 K + 1 if they have different parents. A node is at distance 0 from itself; roots are no siblings.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.
        max_distance: K, the largest distance with a code of its own, in siblings.
        drop_far: whether two nodes that are farther apart count as not related, instead of as K apart.

    Returns:
        (N, N) or (B, N, N) int16.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> sibling_codes(torch.tensor([-1, 0, 0, 0]), max_distance=2)  # a root and its three children
        tensor([[2, 5, 5, 5],
                [5, 2, 3, 4],
                [5, 1, 2, 3],
                [5, 0, 1, 2]], dtype=torch.int16)
    """
    _check_distance(max_distance)
    forest = forest_of(parents)
    ranks = forest.ranks.to(torch.int16)
    return forest.unbatched(_codes(ranks[:, None] - ranks[:, :, None], _siblings(forest), max_distance, drop_far))


def depth_codes(parents: Tensor, max_distance: int, drop_far: bool = False) -> Tensor:
    """How much deeper in its tree node j lies than node i, as codes of `Pairs(2 K + 2)`.

    The code is K + d if j is d edges farther from the root than i, K - d if it is d edges nearer, and 2 K + 1 if they
    are of different trees.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.
        max_distance: K, the largest difference with a code of its own, in edges.
        drop_far: whether two nodes whose depths differ more count as not related, instead of as K apart.

    Returns:
        (N, N) or (B, N, N) int16.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> depth_codes(torch.tensor([-1, 0, 1, 0]), max_distance=2)  # a root, its child, its grandchild, another child
        tensor([[2, 3, 4, 3],
                [1, 2, 3, 2],
                [0, 1, 2, 1],
                [1, 2, 3, 2]], dtype=torch.int16)
    """
    _check_distance(max_distance)
    forest = forest_of(parents)
    depths = forest.depths.to(torch.int16)
    related = forest.common_depths() >= 0
    return forest.unbatched(_codes(depths[:, None] - depths[:, :, None], related, max_distance, drop_far))


def neighbor_codes(parents: Tensor) -> Tensor:
    """Whether node j is the parent, a child, the next or the previous sibling of node i, as codes of `Pairs(6)`.

    The code of a pair is the place of the name in `TREE_NEIGHBORS`: "itself", "parent" (j is the parent of i), "child",
    "next sibling" (j follows i among the children of their parent), "previous sibling" and "none".

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.

    Returns:
        (N, N) or (B, N, N) int16.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> neighbor_codes(torch.tensor([-1, 0, 0, 0]))  # a root and its three children
        tensor([[0, 2, 2, 2],
                [1, 0, 3, 5],
                [1, 4, 0, 3],
                [1, 5, 4, 0]], dtype=torch.int16)
    """
    forest = forest_of(parents)
    n = forest.parents.shape[1]
    nodes = torch.arange(n, device=forest.parents.device)
    ranks = forest.ranks.to(torch.int16)
    siblings, steps = _siblings(forest), ranks[:, None] - ranks[:, :, None]
    parent = forest.parents[:, :, None] == nodes
    codes = torch.full(siblings.shape, TREE_NEIGHBORS.index("none"), dtype=torch.int16, device=nodes.device)
    for name, pairs in (
        ("parent", parent),
        ("child", parent.mT),
        ("next sibling", siblings & (steps == 1)),
        ("previous sibling", siblings & (steps == -1)),
        ("itself", nodes[:, None] == nodes),
    ):
        codes.masked_fill_(pairs, TREE_NEIGHBORS.index(name))
    return forest.unbatched(codes)


def _siblings(forest: Forest) -> Tensor:
    """Which two nodes have one parent, (B, N, N) bool; a node and itself, but not two roots."""
    nodes = torch.arange(forest.parents.shape[1], device=forest.parents.device)
    families = torch.where(forest.parents < 0, -1 - nodes, forest.parents)
    families = families.to(torch.int16)
    return families[:, :, None] == families[:, None]


def _check_distance(max_distance: int) -> None:
    check_size("max_distance", max_distance, 0)
    if 2 * max_distance + 1 > torch.iinfo(torch.int16).max:
        raise ValueError(f"max_distance must be at most 16383, got {max_distance}")


def _codes(offsets: Tensor, related: Tensor, max_distance: int, drop_far: bool) -> Tensor:
    if drop_far:
        related = related & (offsets.abs() <= max_distance)
    codes = offsets.clamp(-max_distance, max_distance).add_(max_distance)
    return codes.masked_fill_(~related, 2 * max_distance + 1)
