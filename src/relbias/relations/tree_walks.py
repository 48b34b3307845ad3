"""Personalised PageRank on trees."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from relbias.relations.base import check_number
from relbias.relations.tree_order import Forest, forest_of

_LEAST = 1e-9
_LEAST_ALPHA = 1e-6
"""Below, float64 would lose the digits in which 1 and 1 - alpha differ."""


def tree_pageranks(parents: Tensor, alpha: float = 0.15) -> Tensor:
    """How far two nodes of a tree are apart for a random walk that goes back to its start, for `Features` and bins.

    x = -log(alpha (I - (1 - alpha) A^T D^-1)^-1 + 1e-9), with A the edges of the tree, in both directions, and D its
    degrees: the personalised PageRank of the Code Transformer (https://arxiv.org/abs/2103.11318). x_ij is minus the
    logarithm of the probability of finding at i a walk from j that at each step goes back to j with probability alpha,
    else to one of the neighbours. A node without edges has x_ii = -log(alpha).

    No matrix is inverted: between two nodes the inverse is a product along their path. It is made with numbers, node
    after node: not on the meta device, in a program that is exported, or in one compiled as a whole (`fullgraph`).

    Args:
        parents: (N,) or (B, N) integers, the parent of each node; -1 for a root, also for padding.
        alpha: the probability of going back, at least 1e-6 and below 1.

    Returns:
        (N, N) or (B, N, N) float32, computed in float64; -log(1e-9), about 20.7, for two nodes of different trees.

    Raises:
        ValueError: another shape or dtype, more than 32,767 nodes, an alpha out of range, or (on CPU) a parent that is
            not a node, or a node above itself.

    Example:
        >>> tree_pageranks(torch.tensor([-1, 0, 0]))  # a root and its two children
        tensor([[0.6152, 0.7777, 0.7777],
                [1.4709, 1.0634, 1.6334],
                [1.4709, 1.6334, 1.0634]])
    """
    check_number("alpha", alpha, _LEAST_ALPHA)
    if alpha >= 1:
        raise ValueError(f"alpha must be a number below 1, got {alpha!r}")
    forest = forest_of(parents)
    up, down, own = _hits(forest, 1.0 - alpha)
    # With K = D - (1 - alpha) A, K^-1_ij is K^-1_jj times the hits along the path from i to j: those of its steps up,
    # which are the sums of i less those of the lowest common ancestor, and those of its steps down, likewise.
    common = forest.of_common_ancestors(torch.nn.functional.pad(up + down, (0, 1), value=-torch.inf))
    degrees = _degrees(forest)
    start = up - (alpha * degrees).log()
    logarithms = (common - start[:, :, None]).sub_((down - own.log())[:, None])  # of the probabilities
    logarithms = logarithms.float().clamp_(min=-60.0)  # where exp needs no slow numbers; nothing beside 1e-9
    return forest.unbatched(logarithms.exp_().add_(_LEAST).log_().neg_())


def _degrees(forest: Forest) -> Tensor:
    """The number of edges at each node, (B, N) float64; 1 for a node without, which the formula leaves where it is."""
    edges = (forest.parents >= 0).double()
    children = torch.zeros_like(forest.above, dtype=torch.float64).scatter_add_(1, forest.above[:, :-1], edges)
    return (edges + children[:, :-1]).clamp_(min=1.0)


def _hits(forest: Forest, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """What the inverse of K = D - beta A is made of.

    K^-1_uj = h K^-1_wj for neighbours u, w and any j beyond w, with the hit h = beta / (d_u - beta times the sum of the
    hits from the other neighbours of u to u).

    Returns:
        Three of (B, N) float64: minus the sum of the logarithms of the hits up from a node to its root, the same down
        from the root to the node, and the diagonal of the inverse.
    """
    batch, n = forest.parents.shape
    # Each hit follows from others: node after node, with numbers, since a tree can be as deep as it has nodes.
    rows = n * torch.arange(batch, device=forest.order.device)[:, None]
    order = (forest.order + rows).flatten().tolist()
    parents = torch.where(forest.parents < 0, -1, forest.parents + rows).flatten().tolist()
    rest = _degrees(forest).flatten().tolist()  # the degree less beta times the hits from below
    up, down = [0.0] * len(order), [0.0] * len(order)
    for node in reversed(order):
        if (parent := parents[node]) >= 0:
            up[node] = beta / rest[node]
            rest[parent] -= beta * up[node]
    log_up, log_down = [0.0] * len(order), [0.0] * len(order)
    for node in order:
        if (parent := parents[node]) >= 0:
            down[node] = beta / (rest[parent] + beta * up[node])
            rest[node] -= beta * down[node]  # now also less that from above: all of the neighbours
            log_up[node] = log_up[parent] - log(up[node])
            log_down[node] = log_down[parent] - log(down[node])
    made = torch.tensor([log_up, log_down, rest], dtype=torch.float64, device=forest.order.device).view(3, batch, n)
    return made[0], made[1], made[2].reciprocal()
