"""What encodings that are functions of any offset have in common."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from relbias.relations import Index, SequenceIndex


def occurring_offsets(index: SequenceIndex, device: torch.device) -> tuple[Tensor, Index]:
    """The offsets j - i that a call has, and an index of them: a table needs a row for each of these and no others.

    Without given positions they are the N + M - 1 from 1 - M to N - 1, within the index's max_distance. With given
    ones they are all up to max_distance, or without it all between the smallest and the largest, for which the
    positions are looked at: that waits for a GPU and is left out of a compiled graph.

    Args:
        index: of N queries and M keys.
        device: where to make the offsets.

    Returns:
        The offsets, (R,) int64, ascending, and an index whose code at (i, j) is the place of j - i among them.

    Example:
        >>> from relbias.relations import Sequence
        >>> offsets, rows = occurring_offsets(Sequence()(2, 3), torch.device("cpu"))
        >>> offsets
        tensor([-2, -1,  0,  1])
        >>> rows.codes()[0, 0]
        tensor([[1, 2, 3],
                [0, 1, 2]])
    """
    n, m = index.shape
    limit = index.max_distance
    if index.query_positions is None:
        low, high = (1 - m, n - 1) if index.sign == 1 else (1 - n, m - 1)
        if limit is not None:
            low, high = max(low, -limit), min(high, limit)
    elif limit is not None:
        low, high = -limit, limit
    else:
        queries, keys = index.positions()
        low, high = 0, -1
        if queries.numel() and keys.numel():
            low, high = int(keys.min() - queries.max()), int(keys.max() - queries.min())
    size = max(high - low + 1, 0)
    return torch.arange(size, device=device) + low, index.map(lambda offsets: offsets - low, size)


def without_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """A context in which products keep their dtype, on the tensor's device; tables are rounded by attention, last."""
    kind = tensor.device.type
    enabled = kind != "meta" and torch.is_autocast_enabled(kind)  # there is no autocast without values
    return torch.autocast(kind, enabled=False) if enabled else nullcontext()
