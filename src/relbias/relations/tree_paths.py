"""The path between two nodes of a tree: up to their lowest common ancestor, then down."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import check_size
from relbias.relations.tree_order import Forest, forest_of


def tree_hops(parents: Tensor) -> Tensor:
    """The number of edges between two nodes of a tree, for `Hops`.

    d_ij = depth_i + depth_j - 2 depth_l, with l the lowest common ancestor of i and j: the shortest paths of the Code
    Transformer (https://arxiv.org/abs/2103.11318). For a tree the same as `shortest_paths`, in less time.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.

    Returns:
        (N, N) or (B, N, N) int16, in hops; -1 for two nodes of different trees.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> tree_hops(torch.tensor([-1, 0, 1, 0]))  # a root, its child, its grandchild, another child
        tensor([[0, 1, 2, 1],
                [1, 0, 1, 2],
                [2, 1, 0, 3],
                [1, 2, 3, 0]], dtype=torch.int16)
    """
    forest = forest_of(parents)
    depths, common = forest.depths.to(torch.int16), forest.common_depths()
    hops = (depths[:, :, None] + depths[:, None]).sub_(common, alpha=2)
    return forest.unbatched(hops.masked_fill_(common < 0, -1))


def tree_steps(parents: Tensor) -> tuple[Tensor, Tensor]:
    """How many edges the path from node i to node j goes up, to their lowest common ancestor, and then down.

    up_ij = depth_i - depth_l and down_ij = depth_j - depth_l = up_ji, with l the lowest common ancestor.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.

    Returns:
        Two of (N, N) or (B, N, N) int16, up and down, in edges; -1 for two nodes of different trees.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> up, down = tree_steps(torch.tensor([-1, 0, 1, 0]))  # a root, its child, its grandchild, another child
        >>> up[2], down[2]  # of the grandchild
        (tensor([2, 1, 0, 2], dtype=torch.int16), tensor([0, 0, 0, 1], dtype=torch.int16))
    """
    forest = forest_of(parents)
    up = forest.unbatched(_up(forest))
    return up, up.mT


def step_codes(parents: Tensor, max_distance: int) -> Tensor:
    """The steps up and down between two nodes, see `tree_steps`, as codes of `Pairs((K + 1)^2 + 1)`.

    The code is (K + 1) up + down, where more than K steps count as K, and (K + 1)^2 for two nodes of different trees.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.
        max_distance: K, the largest number of steps up, or down, with a code of its own, at most 180.

    Returns:
        (N, N) or (B, N, N) int16.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.

    Example:
        >>> step_codes(torch.tensor([-1, 0, 1, 0]), max_distance=2)  # a root, its child, its grandchild, another child
        tensor([[0, 1, 2, 1],
                [3, 0, 1, 4],
                [6, 3, 0, 7],
                [3, 4, 5, 0]], dtype=torch.int16)
    """
    check_size("max_distance", max_distance, 0)
    if (max_distance + 1) ** 2 > torch.iinfo(torch.int16).max:
        raise ValueError(f"max_distance must be at most 180, got {max_distance}")
    forest = forest_of(parents)
    up = _up(forest)
    steps = up.clamp(max=max_distance)
    codes = steps * (max_distance + 1) + steps.mT
    return forest.unbatched(codes.masked_fill_(up < 0, (max_distance + 1) ** 2))


def _up(forest: Forest) -> Tensor:
    """The steps from i up to the lowest common ancestor, (B, N, N) int16, -1 without one."""
    common = forest.common_depths()
    return (forest.depths.to(torch.int16)[:, :, None] - common).masked_fill_(common < 0, -1)
