"""Codes that depend on sizes alone, made once and kept for later calls."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from relbias.relations.base import ALL_ROWS, Index

_LARGEST = 2**20
"""Up to how many codes of an index are kept, 4 MiB; more are made block by block, in less memory."""
_MOST = 8
"""Of how many indices."""


def read_codes(index: Index, rows: slice, device: torch.device) -> Tensor:
    """The codes of some rows, to be read only: others read the same memory.

    Those of an index that is made of sizes alone are kept by the index and the device, in the smallest integers that
    torch indexes with. They are ordinary tensors, so that those made in inference mode serve in training too. Nothing
    is kept where tensors are no plain numbers in memory: in a graph that is compiled, exported, traced or captured,
    under torch.func and under modes that take part in every operation.

    Args:
        index: of N queries and M keys.
        rows: the queries asked for, n of N.
        device: where the codes are needed.

    Returns:
        (B or 1, H or 1, n, M) int32 or int64.

    Example:
        >>> from relbias.relations import Grid
        >>> read_codes(Grid(2, 2)(), slice(0, 1), torch.device("cpu"))
        tensor([[[[4, 3, 1, 0]]]], dtype=torch.int32)
    """
    if not index.of_sizes or not plain_numbers(device):
        return index.codes(rows, device)
    n, m = index.shape
    if n * m > _LARGEST:
        return index.codes(rows, device)
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return _all_codes(index, device, stream)[..., rows, :]


def plain_numbers(device: torch.device) -> bool:
    """Whether tensors on a device are plain numbers now, which may be looked at and may outlive the call."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or _get_current_dispatch_mode() is not None:
        return False
    if torch._C._functorch.maybe_current_level() is not None:
        return False
    # What is made while a graph is captured lies in the graph's own memory.
    return device.type == "cpu" or (device.type == "cuda" and not torch.cuda.is_current_stream_capturing())


@functools.lru_cache(maxsize=_MOST)  # safe in threads, and in a process that forks
def _all_codes(index: Index, device: torch.device, stream: int) -> Tensor:
    """The codes of all rows; on a GPU for each stream, since another would not wait for them to be made."""
    with torch.inference_mode(False):
        return index.codes(ALL_ROWS, device).to(torch.int32)
