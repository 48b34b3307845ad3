"""What holds between tokens that belong to the nodes of a tree."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from relbias.relations.base import as_integers, can_check_values


def between_tokens(values: Tensor, node_of_token: Tensor, unrelated: float) -> Tensor:
    """The values of pairs of nodes, for the pairs of tokens that belong to them: x_ij = values[node_i, node_j].

    Two tokens of one node have the value of the node and itself.

    Args:
        values: (N, N, ...) or (B, N, N, ...), codes, distances or features of the pairs of nodes.
        node_of_token: (T,) or (B, T) integers, the node of each token; -1 for one without a node, also for padding.
        unrelated: the value of a pair with a token that has no node, also of the token and itself: the code that
            `ancestor_codes` and the others have for nodes that are not related, -1 for `tree_hops` and `tree_steps`.

    Returns:
        (T, T, ...) or (B, T, T, ...), in the dtype of `values`.

    Raises:
        ValueError: another shape or dtype, an `unrelated` that the dtype cannot hold, or (on CPU, outside compile and
            export) a node out of range.

    Example:
        >>> from relbias.relations import tree_hops
        >>> hops = tree_hops(torch.tensor([-1, 0, 0]))  # a root and its two children
        >>> between_tokens(hops, torch.tensor([1, 1, -1, 2]), unrelated=-1)
        tensor([[ 0,  0, -1,  2],
                [ 0,  0, -1,  2],
                [-1, -1, -1, -1],
                [ 2,  2, -1,  0]], dtype=torch.int16)
    """
    values, tokens = torch.as_tensor(values), as_integers("node_of_token", node_of_token)
    nodes = tokens.long()
    if nodes.ndim not in (1, 2):
        raise ValueError(f"node_of_token must have shape (T,) or (B, T), got {tuple(nodes.shape)}")
    batched = nodes.ndim == 2
    pairs, nodes = (values, nodes) if batched else (values[None], nodes[None])
    if pairs.ndim < 3 or pairs.shape[1] != pairs.shape[2] or pairs.shape[0] != nodes.shape[0]:
        expected = f"({nodes.shape[0]}, N, N, ...)" if batched else "(N, N, ...)"
        raise ValueError(
            f"the values of pairs of nodes must have shape {expected} for tokens of shape "
            f"{tuple(tokens.shape)}, got {tuple(values.shape)}"
        )
    _check_fill(values.dtype, unrelated)
    n = pairs.shape[1]
    if can_check_values(nodes) and nodes.numel() and not -1 <= int(nodes.min()) <= int(nodes.max()) < n:
        raise ValueError(
            f"the {n} nodes of tokens are from 0 to {n - 1}, or -1 for none, got {int(nodes.min())} "
            f"to {int(nodes.max())}"
        )
    # A node more, to which no node is related, stands for none: the last one, to which -1 points.
    rest = [0, 0] * (pairs.ndim - 3)
    pairs = torch.nn.functional.pad(pairs, (*rest, 0, 1, 0, 1), value=unrelated)
    rows = torch.arange(nodes.shape[0], device=nodes.device)[:, None, None]
    tokens = pairs[rows, nodes[:, :, None], nodes[:, None]]
    return tokens if batched else tokens[0]


def _check_fill(dtype: torch.dtype, unrelated: Any) -> None:
    if not _is_number(unrelated):
        held = False
    elif dtype.is_floating_point or dtype.is_complex:
        held = not math.isfinite(unrelated) or abs(unrelated) <= torch.finfo(dtype).max
    else:
        limits = torch.iinfo(torch.uint8 if dtype == torch.bool else dtype)
        highest = 1 if dtype == torch.bool else limits.max
        held = limits.min <= unrelated <= highest and unrelated == int(unrelated)
    if not held:
        raise ValueError(f"unrelated must be a value of {dtype}, got {unrelated!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real)
