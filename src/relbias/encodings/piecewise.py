"""iRPE's piecewise index: near offsets one by one, far ones in logarithmic buckets."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def piecewise_index(offsets: Tensor, ratio: float) -> Tensor:
    """The bucket g(x) of offsets or distances.

    With alpha = ratio, beta = 2 ratio and gamma = 8 ratio, g(x) = x where |x| <= alpha, else
    sign(x) min(floor(beta), round(alpha + ln(|x| / alpha) / ln(gamma / alpha) (beta - alpha))).

    Args:
        offsets: integers, in patches or square patches.
        ratio: a positive number.

    Returns:
        int64 from -floor(2 ratio) to floor(2 ratio).

    Example:
        >>> piecewise_index(torch.arange(-1, 6), ratio=1.9).tolist()
        [-1, 0, 1, 2, 2, 3, 3]
    """
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    distances = offsets.abs().double()
    far = alpha + (distances.clamp(min=alpha) / alpha).log() / math.log(gamma / alpha) * (beta - alpha)
    far = far.round().long().clamp(max=int(beta)) * offsets.sign()
    return torch.where(distances <= alpha, offsets, far)


def euclidean_index(dy: Tensor, dx: Tensor, ratio: float) -> Tensor:
    """The bucket g of the Euclidean distance rounded to whole patches."""
    return piecewise_index((dy.square() + dx.square()).double().sqrt().round().long(), ratio)


def quantization_index(dy: Tensor, dx: Tensor, ratio: float) -> Tensor:
    """The bucket g of the squared Euclidean distance."""
    return piecewise_index(dy.square() + dx.square(), ratio)


def rows_index(dy: Tensor, dx: Tensor, ratio: float) -> Tensor:
    """The bucket g(dy), from 0 on."""
    return piecewise_index(dy, ratio) + int(2 * ratio)


def columns_index(dy: Tensor, dx: Tensor, ratio: float) -> Tensor:
    """The bucket g(dx), from 0 on."""
    return piecewise_index(dx, ratio) + int(2 * ratio)


def product_index(dy: Tensor, dx: Tensor, ratio: float) -> Tensor:
    """The pair (g(dy), g(dx)), from 0 on."""
    return rows_index(dy, dx, ratio) * (2 * int(2 * ratio) + 1) + columns_index(dy, dx, ratio)
