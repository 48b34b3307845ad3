"""How two nodes of a tree stand to each other, as codes."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import as_integers, can_check_values, check_size


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
        ValueError: another shape or dtype, or (on CPU, outside compile and export) a parent that is not a node, or a
            node above itself.

    Example:
        >>> ancestor_codes(torch.tensor([-1, 0, 1]), max_distance=2)  # a root, its child and its grandchild
        tensor([[2, 3, 4],
                [1, 2, 3],
                [0, 1, 2]], dtype=torch.int16)
    """
    parents, batched = _as_parents(parents, max_distance)
    batch, n = parents.shape
    nodes = torch.arange(n, device=parents.device).expand(batch, n)
    heights = torch.zeros(batch, n, n + 1, dtype=torch.int64, device=parents.device)  # how far j is above i
    related = torch.zeros(batch, n, n + 1, dtype=torch.bool, device=parents.device)
    # Node n stands above all roots, so that every node has an ancestor at every step.
    above = torch.nn.functional.pad(torch.where(parents < 0, n, parents), (0, 1), value=n)
    ancestors = nodes
    for height in range(n + 1):
        if height and can_check_values(ancestors) and bool((ancestors == nodes).any()):
            raise ValueError("a node is its own ancestor; parents must form trees")
        if bool((ancestors == n).all()):
            break
        heights.scatter_(2, ancestors[..., None], height)
        related.scatter_(2, ancestors[..., None], True)
        ancestors = above.gather(1, ancestors)
    heights, related = heights[..., :n], related[..., :n]
    codes = _codes(heights.mT - heights, related | related.mT, max_distance, drop_far)
    return codes if batched else codes[0]


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
        ValueError: another shape or dtype, or (on CPU, outside compile and export) a parent that is not a node.

    Example:
        >>> sibling_codes(torch.tensor([-1, 0, 0, 0]), max_distance=2)  # a root and its three children
        tensor([[2, 5, 5, 5],
                [5, 2, 3, 4],
                [5, 1, 2, 3],
                [5, 0, 1, 2]], dtype=torch.int16)
    """
    parents, batched = _as_parents(parents, max_distance)
    siblings = (parents[:, :, None] == parents[:, None]) & (parents >= 0)[:, None]
    ranks = siblings.tril(-1).sum(dim=-1)
    itself = torch.eye(parents.shape[1], dtype=torch.bool, device=parents.device)
    codes = _codes(ranks[:, None] - ranks[:, :, None], siblings | itself, max_distance, drop_far)
    return codes if batched else codes[0]


def _as_parents(parents: Tensor, max_distance: int) -> tuple[Tensor, bool]:
    check_size("max_distance", max_distance, 0)
    if 2 * max_distance + 1 > torch.iinfo(torch.int16).max:
        raise ValueError(f"max_distance must be at most 16383, got {max_distance}")
    parents = as_integers("parents", parents)
    if parents.ndim not in (1, 2):
        raise ValueError(f"parents must have shape (N,) or (B, N), got {tuple(parents.shape)}")
    n = parents.shape[-1]
    if can_check_values(parents) and parents.numel() and not -1 <= int(parents.min()) <= int(parents.max()) < n:
        raise ValueError(
            f"the parents of {n} nodes are from 0 to {n - 1}, or -1 for a root, got {int(parents.min())} "
            f"to {int(parents.max())}"
        )
    return (parents if parents.ndim == 2 else parents[None]).long(), parents.ndim == 2


def _codes(offsets: Tensor, related: Tensor, max_distance: int, drop_far: bool) -> Tensor:
    if drop_far:
        related = related & (offsets.abs() <= max_distance)
    codes = offsets.clamp(-max_distance, max_distance) + max_distance
    return torch.where(related, codes, 2 * max_distance + 1).to(torch.int16)
