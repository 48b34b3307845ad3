"""Lengths of the clips in a batch of features."""

from __future__ import annotations

from torch import Tensor

from relbias.relations.base import as_integers, can_check_values


def check_frames(lengths: Tensor, batch: int, frames: int) -> Tensor:
    """The lengths of clips as int64, or a ValueError that says what is wrong with them.

    Values are looked at on CPU alone, and not in a program that is being compiled.

    Args:
        lengths: (B,) integers, the frames of each clip.
        batch: B.
        frames: T, how many frames there are with the padding.

    Returns:
        (B,) int64.

    Raises:
        ValueError: another shape or dtype, or a length that is not from 1 to T.

    Example:
        >>> import torch
        >>> check_frames(torch.tensor([3, 5]), batch=2, frames=4)
        Traceback (most recent call last):
        ...
        ValueError: lengths must be from 1 to the 4 frames that there are, got 5
    """
    if not isinstance(lengths, Tensor) or lengths.shape != (batch,):
        given = tuple(lengths.shape) if isinstance(lengths, Tensor) else f"a {type(lengths).__name__}"
        raise ValueError(f"lengths must be a tensor of shape ({batch},), got {given}")
    lengths = as_integers("lengths", lengths).long()
    if can_check_values(lengths) and lengths.numel():
        low, high = (int(value) for value in lengths.aminmax())
        if low < 1 or high > frames:
            raise ValueError(
                f"lengths must be from 1 to the {frames} frames that there are, got {low if low < 1 else high}"
            )
    return lengths
