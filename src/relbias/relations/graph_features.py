"""Real numbers of the pairs of a graph's nodes, made from its adjacency matrix or its coordinates."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.relations.base import can_check_values, check_size


def random_walks(adjacency: Tensor, num_steps: int) -> Tensor:
    """The probabilities that a random walk from i stands at j after 0, 1, ... K - 1 steps.

    P_ij = [I, M, M^2, ..., M^(K-1)]_ij with M = D^-1 A, whose rows are zero for a node without edges: the relative
    random walk probabilities of GRIT (https://arxiv.org/abs/2305.17589).

    Args:
        adjacency: (N, N) or (B, N, N), A, real or boolean, at least 0: the weight of the edge from i to j.
        num_steps: K, counting step 0.

    Returns:
        (N, N, K) or (B, N, N, K), in A's dtype or, if that is not floating, float32.

    Raises:
        ValueError: another shape, a K below 1, or (on CPU, outside compile and export) a weight below 0 or not finite.

    Example:
        >>> star = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
        >>> random_walks(star, num_steps=3)[1]  # from node 1: it stays, goes to node 0, then to 1 or 2
        tensor([[0.0000, 1.0000, 0.0000],
                [1.0000, 0.0000, 0.5000],
                [0.0000, 0.0000, 0.5000]])
    """
    check_size("random_walks' num_steps", num_steps, 1)
    adjacency = _as_adjacency(adjacency)
    degrees = adjacency.sum(dim=-1, keepdim=True)
    step = adjacency / degrees.masked_fill(degrees == 0, 1.0)
    power = torch.eye(adjacency.shape[-1], dtype=step.dtype, device=step.device).expand_as(step)
    powers = [power]
    for _ in range(num_steps - 1):
        power = power @ step
        powers.append(power)
    return torch.stack(powers, dim=-1)


def resistance_distances(adjacency: Tensor) -> Tensor:
    """The resistance between two nodes if every edge is a resistor of conductance A_ij.

    R_ij = L+_ii + L+_jj - 2 L+_ij with L = D - A. Between two components of the graph it is infinite; a feature of its
    own says so.

    Args:
        adjacency: (N, N) or (B, N, N), A, symmetric, real or boolean, at least 0.

    Returns:
        (N, N, 2) or (B, N, N, 2), in A's dtype or, if that is not floating, float32; computed in float64. The first
        feature is the resistance, 0 if there is no path, the second 1 if there is no path, else 0.

    Raises:
        ValueError: another shape, or (on CPU, outside compile and export) a weight below 0 or not finite, or A is not
            symmetric.

    Example:
        >>> graph = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]])  # an edge, and a node alone
        >>> resistance_distances(graph)[..., 0]
        tensor([[0., 1., 0.],
                [1., 0., 0.],
                [0., 0., 0.]])
        >>> resistance_distances(graph)[..., 1]
        tensor([[0., 0., 1.],
                [0., 0., 1.],
                [1., 1., 0.]])
    """
    adjacency = _as_adjacency(adjacency)
    dtype, weights = adjacency.dtype, adjacency.double()
    if can_check_values(weights) and not torch.equal(weights, weights.mT):
        raise ValueError(
            "resistances are of an undirected graph, and the adjacency matrix is not symmetric; give each edge in both "
            "directions"
        )
    n = weights.shape[-1]
    itself = torch.eye(n, dtype=torch.bool, device=weights.device)
    reached = (weights > 0) | itself
    for _ in range(max(n - 1, 1).bit_length()):  # each time paths twice as long
        reached = reached.double() @ reached.double() > 0
    # L is singular: its null space are the indicators of the components. With the projection on them added, its
    # inverse is L+ plus that projection, which cancels in R within a component.
    projection = reached.double() / reached.sum(dim=-1, keepdim=True)
    laplacian = torch.diag_embed(weights.sum(dim=-1)) - weights
    inverse = torch.linalg.inv(laplacian + projection)
    diagonal = inverse.diagonal(dim1=-2, dim2=-1)
    resistances = diagonal[..., :, None] + diagonal[..., None, :] - 2.0 * inverse
    resistances = resistances.masked_fill(~reached | itself, 0.0).clamp(min=0.0)
    return torch.stack((resistances, (~reached).double()), dim=-1).to(dtype)


def pairwise_distances(coordinates: Tensor) -> Tensor:
    """The distance in space between any two points.

    Differences are squared and added, not taken from products, so that near points have exact distances and a point
    has distance 0 from itself.

    Args:
        coordinates: (N, S) or (B, N, S), floating, in a unit of your choice.

    Returns:
        (N, N) or (B, N, N), in the same unit and dtype.

    Raises:
        ValueError: another shape or dtype.

    Example:
        >>> pairwise_distances(torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]]))
        tensor([[0., 5.],
                [5., 0.]])
    """
    coordinates = torch.as_tensor(coordinates)
    if coordinates.ndim not in (2, 3) or not coordinates.dtype.is_floating_point:
        raise ValueError(
            f"coordinates have shape (N, S) or (B, N, S) and are floating, got {tuple(coordinates.shape)} "
            f"{coordinates.dtype}"
        )
    points = coordinates.to(torch.promote_types(coordinates.dtype, torch.float32))  # torch has no half precision here
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").to(coordinates.dtype)


def _as_adjacency(adjacency: Tensor) -> Tensor:
    adjacency = torch.as_tensor(adjacency)
    if adjacency.ndim not in (2, 3) or adjacency.shape[-1] != adjacency.shape[-2] or adjacency.dtype.is_complex:
        raise ValueError(
            f"an adjacency matrix has shape (N, N) or (B, N, N), got {tuple(adjacency.shape)} {adjacency.dtype}"
        )
    adjacency = adjacency if adjacency.dtype.is_floating_point else adjacency.float()
    if can_check_values(adjacency) and not bool(((adjacency >= 0) & adjacency.isfinite()).all()):
        raise ValueError("the weights of edges must be at least 0 and finite; correct the adjacency matrix")
    return adjacency
