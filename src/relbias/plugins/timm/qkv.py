"""Queries, keys and values from the projections of timm's attention modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def project_apart(module: Any, x: Tensor) -> list[Tensor]:
    """Queries, keys and values by three projections.

    Args:
        module: with `q_proj`, `k_proj`, `v_proj` and `head_dim`.
        x: (B, N, C).

    Returns:
        (B, H, N, D), and two of (B, H or fewer, N, D).
    """
    projections = (module.q_proj, module.k_proj, module.v_proj)
    return [project(x).unflatten(-1, (-1, module.head_dim)).transpose(1, 2) for project in projections]


def split_qkv(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    """(B, N, 3 H D), all queries first, as three of (B, H, N, D)."""
    return qkv.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def project_without_key_bias(module: Any, x: Tensor) -> Tensor:
    """The one projection of BEiT, EVA and Swin v2, whose bias has parts for queries and values, and zeros for keys.

    Args:
        module: with `qkv`, `q_bias`, `k_bias`, `v_bias` and `qkv_bias_separate`.
        x: (B, N, C).

    Returns:
        (B, N, 3 H D).
    """
    if module.q_bias is None:
        return module.qkv(x)
    bias = torch.cat((module.q_bias, module.k_bias, module.v_bias))
    if module.qkv_bias_separate:
        return module.qkv(x) + bias
    return torch.nn.functional.linear(x, module.qkv.weight, bias)
