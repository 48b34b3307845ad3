"""The memory that a call needs."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch


def peak_memory(run: Callable[[], object], device: torch.device) -> int:
    """How far the memory of tensors rises above its level before a call, at the highest point, in bytes.

    It counts what torch's allocator hands out: the output, what is kept for the backward pass, gradients and the
    buffers within operators; on CPU not what libraries below torch take for themselves. Counting by the allocator's own
    records is exact: unlike the process's resident memory it depends neither on what ran before nor on freed pages.

    Args:
        run: the call.
        device: where it computes.

    Example:
        >>> peak_memory(lambda: torch.ones(2**18) + torch.ones(2**18), torch.device("cpu"))  # three of 1 MiB
        3145728
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it reports each start and stop on the standard error
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    level = peak = 0
    for _, change in changes:
        level += change
        peak = max(peak, level)
    return peak
