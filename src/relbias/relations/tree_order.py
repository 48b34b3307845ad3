"""The nodes of trees in the order in which a walk meets them, from which all pairs are compared at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relbias.relations.base import as_integers, can_check_values

_MOST = torch.iinfo(torch.int16).max
"""As many nodes as a tree may have, so that its depths fit int16."""


@dataclass(frozen=True)
class Forest:
    """Trees whose nodes are numbered, a row of a batch each; made by `forest_of`.

    A node N, not one of theirs, stands above all roots: it makes one tree of several.

    Args:
        parents: (B, N) int64, -1 for a root.
        above: (B, N + 1) int64, the parents, with N above the roots and above itself.
        depths: (B, N) int64, the number of edges from a node up to its root.
        ranks: (B, N) int64, the number of siblings before a node, in the order of their numbers; of a root, of roots.
        order: (B, N) int64, the nodes in preorder: a node, then the subtrees of its children.
        batched: whether the trees were given with a batch axis.
    """

    parents: Tensor
    above: Tensor
    depths: Tensor
    ranks: Tensor
    order: Tensor
    batched: bool

    def of_common_ancestors(self, values: Tensor) -> Tensor:
        """Of each two nodes, the value of their lowest common ancestor.

        Args:
            values: (B, N + 1), less for a node than for its children; last that of two nodes of different trees.

        Returns:
            (B, N, N), in the same dtype.
        """
        n = self.order.shape[1]
        # In preorder, all nodes after i up to j lie below the lowest common ancestor of i and j, and one of them is its
        # child: the least value of their parents is that of the ancestor. Before i stands what is not less.
        of_parents = values.gather(1, self.above.gather(1, self.order))
        after = torch.ones(n, n, dtype=torch.bool, device=values.device).triu(1)
        pairs = torch.where(after, of_parents[:, None], values.gather(1, self.order)[:, :, None])
        pairs = pairs.cummin(dim=2).values
        pairs = torch.minimum(pairs, pairs.mT)
        # Back to the order of the numbers: the matrix is symmetric, so that rows can be chosen twice.
        places = self.order.argsort(dim=1)
        rows = (places + n * torch.arange(places.shape[0], device=places.device)[:, None]).flatten()
        pairs = pairs.flatten(0, 1).index_select(0, rows).view(pairs.shape)
        return pairs.mT.flatten(0, 1).index_select(0, rows).view(pairs.shape)

    def common_depths(self) -> Tensor:
        """The depth of the lowest common ancestor of each two nodes.

        Returns:
            (B, N, N) int16, -1 for two nodes of different trees.
        """
        return self.of_common_ancestors(torch.nn.functional.pad(self.depths, (0, 1), value=-1).to(torch.int16))

    def unbatched(self, pairs: Tensor) -> Tensor:
        """(B, N, N, ...) as the trees were given: without B if they had no batch axis."""
        return pairs if self.batched else pairs[0]


def forest_of(parents: Tensor) -> Forest:
    """Number the nodes of trees as they are met, all trees together, in steps of twice as many generations.

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, or (on CPU, outside compile and export) a parent
            that is not a node, or a node above itself.
    """
    parents, batched = _as_parents(parents)
    batch, n = parents.shape
    above = torch.nn.functional.pad(parents, (0, 1), value=-1)
    above = torch.where(above < 0, n, above)
    jumps = [above]  # up by 1, 2, 4, ... generations
    # A number of them that depends on n would make a compiled or exported program one for this n.
    generations = _MOST if torch.compiler.is_compiling() else n
    for _ in range(generations.bit_length()):
        jumps.append(jumps[-1].gather(1, jumps[-1]))
    if can_check_values(parents) and bool((jumps[-1] < n).any()):
        raise ValueError("a node is its own ancestor; parents must form trees")
    depths = (above < n).long()
    sizes = torch.ones_like(depths)  # how many nodes lie at or below each, as far as the jumps have led
    for jump in jumps[:-1]:
        depths = depths + depths.gather(1, jump)
        sizes = sizes.scatter_add(1, jump, sizes)
    families = above[:, :n].argsort(dim=1, stable=True)  # children of one parent together
    sums = torch.nn.functional.pad(sizes.gather(1, families).cumsum(dim=1), (1, 0))[:, :n]
    counts = torch.arange(n, device=parents.device).expand(batch, n)
    parent = above.gather(1, families)
    starts = parent != parent.roll(1, 1)
    ranks = torch.empty_like(parents).scatter_(1, families, counts - _since(counts, starts))
    # A node's place is after that of its parent and the subtrees of its earlier siblings.
    places = torch.zeros_like(above).scatter_(1, families, 1 + sums - _since(sums, starts))
    for jump in jumps[:-1]:
        places = places + places.gather(1, jump)
    return Forest(parents, above, depths[:, :n], ranks, places[:, :n].argsort(dim=1), batched)


def _since(values: Tensor, starts: Tensor) -> Tensor:
    """Of ascending numbers from 0 on, (B, N), the last one at a start."""
    return torch.where(starts, values, 0).cummax(dim=1).values if values.shape[1] else values


def _as_parents(parents: Tensor) -> tuple[Tensor, bool]:
    parents = as_integers("parents", parents)
    if parents.ndim not in (1, 2):
        raise ValueError(f"parents must have shape (N,) or (B, N), got {tuple(parents.shape)}")
    n = parents.shape[-1]
    if n > _MOST:
        raise ValueError(
            f"a tree of {n} nodes has too many for a number of each pair; take subtrees of at most {_MOST} nodes"
        )
    if can_check_values(parents) and parents.numel() and not -1 <= int(parents.min()) <= int(parents.max()) < n:
        raise ValueError(
            f"the parents of {n} nodes are from 0 to {n - 1}, or -1 for a root, got {int(parents.min())} "
            f"to {int(parents.max())}"
        )
    return (parents if parents.ndim == 2 else parents[None]).long(), parents.ndim == 2
