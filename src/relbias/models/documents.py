"""Positions of tokens in packed documents and in padded items."""

from __future__ import annotations

import torch
from torch import Tensor


def document_positions(document_ids: Tensor) -> Tensor:
    """The position of each token in its own document, where documents follow one another in a row.

    Args:
        document_ids: (B, N) integers; a new document starts wherever the number changes.

    Returns:
        (B, N) int64, from 0 in each document.

    Raises:
        ValueError: another shape.

    Example:
        >>> document_positions(torch.tensor([[7, 7, 7, 2, 2, 5]]))
        tensor([[0, 1, 2, 0, 1, 0]])
    """
    if document_ids.ndim != 2:
        raise ValueError(f"document_ids must have shape (B, N), got {tuple(document_ids.shape)}")
    slots = torch.arange(document_ids.shape[1], device=document_ids.device).expand(document_ids.shape)
    same = torch.nn.functional.pad(document_ids[:, 1:] == document_ids[:, :-1], (1, 0), value=False)
    return slots - slots.masked_fill(same, 0).cummax(dim=1).values if document_ids.shape[1] else slots


def padded_positions(key_padding_mask: Tensor) -> Tensor:
    """The position of each token among those of its item that are no padding.

    Args:
        key_padding_mask: (B, N) bool, True = padding.

    Returns:
        (B, N) int64, from 0 at an item's first token; at padding before it 0.

    Raises:
        ValueError: another shape or dtype.

    Example:
        >>> padded_positions(torch.tensor([[True, True, False, False], [False, False, False, False]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 3]])
    """
    if key_padding_mask.ndim != 2 or key_padding_mask.dtype != torch.bool:
        raise ValueError(
            f"key_padding_mask is boolean of shape (B, N), got {key_padding_mask.dtype} of "
            f"{tuple(key_padding_mask.shape)}"
        )
    return ((~key_padding_mask).cumsum(dim=1) - 1).clamp(min=0)
