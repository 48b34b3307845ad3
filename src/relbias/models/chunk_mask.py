"""Which frames a frame attends to where a clip is read chunk by chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.attention.masks import Window
from relbias.relations.base import check_size


def chunk_mask(frames: int, chunk: int, left_context: int | None, device: torch.device | str | None = None) -> Tensor:
    """Which frames a frame attends to: those of its own chunk, and `left_context` before it.

    Args:
        frames: T.
        chunk: how many frames a chunk has; the last one may have fewer.
        left_context: how many frames before the chunk, or None for all.
        device: where the mask is made.

    Returns:
        (T, T) bool, True = may attend.

    Example:
        >>> chunk_mask(5, chunk=2, left_context=1).int()
        tensor([[1, 1, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 0, 1, 1]], dtype=torch.int32)
    """
    keys = torch.arange(frames, device=device)
    first = (keys - keys % chunk)[:, None]
    allowed = keys < first + chunk
    return allowed if left_context is None else allowed & (keys >= first - left_context)


def check_chunks(chunk: int | None, left_context: int | None, window: Window | None) -> None:
    """Raise ValueError unless the sizes are right and go together."""
    if chunk is None:
        if left_context is not None:
            raise ValueError("left_context is of chunks; give chunk as well, or a window")
        return
    check_size("chunk", chunk, 1)
    if left_context is not None:
        check_size("left_context", left_context, 0)
    if window is not None:
        raise ValueError("chunks have a left_context and no window; give one of the two")
