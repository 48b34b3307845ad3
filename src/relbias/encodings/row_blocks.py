"""A function of the rows, computed some rows at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_NUMBERS_PER_BLOCK = 2**22
"""How many intermediate numbers a block has at most: 16 MiB in float32."""


def in_row_blocks(function: Callable[[slice], Tensor], rows: slice, n: int, numbers_per_row: int) -> Tensor:
    """What a function gives for some rows, computed some rows at a time and again in the backward pass.

    Whatever the function needs on the way, such as a hidden layer for each pair, is in memory for a block of rows only.
    In a compiled or exported graph and under torch.func all rows are one block.

    Args:
        function: takes rows, n of N, and gives (..., n, M).
        rows: the queries asked for.
        n: N.
        numbers_per_row: how many numbers the function has in memory for a row.

    Returns:
        (..., n, M).

    Example:
        >>> squares = torch.arange(6.0).view(3, 2)
        >>> in_row_blocks(lambda rows: squares[rows] ** 2, slice(1, 3), n=3, numbers_per_row=2**22)
        tensor([[ 4.,  9.],
                [16., 25.]])
    """
    # The sizes may be open in compilation; under torch.func nothing can be computed again.
    if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
        return function(rows)
    start, stop = rows.start or 0, n if rows.stop is None else rows.stop
    size = max(1, _NUMBERS_PER_BLOCK // max(1, numbers_per_row))
    if stop - start <= size:
        return function(rows)
    blocks = [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(function, block, use_reentrant=False) for block in blocks], dim=-2)
    return torch.cat([function(block) for block in blocks], dim=-2)
