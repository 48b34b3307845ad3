"""Times of several calls, measured side by side."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import torch

_SHORTEST = 0.01
"""Seconds that a sample takes at least: shorter calls are repeated within it."""


@contextmanager
def quiet_process() -> Generator[None]:
    """One thread and no garbage collection, so that the process time is that of the call."""
    threads, collects = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collects:
            gc.enable()


def seconds(run: Callable[[], object], repeats: int, device: torch.device) -> float:
    """The time of one call: of the process on CPU, between two events on a GPU.

    Args:
        run: the call.
        repeats: how many calls the mean is of.
        device: where it computes.
    """
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        torch.cuda.synchronize(device)
        return start.elapsed_time(end) / 1000 / repeats
    begin = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - begin) / repeats


def interleaved(runs: Sequence[Callable[[], object]], rounds: int, device: torch.device) -> list[list[float]]:
    """Measure all calls in each round, so that what disturbs a round disturbs them all.

    The order moves on by one from round to round. Every call is made twice before the first round: once to warm up, and
    once to find how often to repeat it.

    Args:
        runs: the calls.
        rounds: how many samples of each to take.
        device: where they compute.

    Returns:
        For each call its time in each round, in seconds.

    Example:
        >>> times = interleaved([lambda: sum(range(10)), lambda: None], rounds=3, device=torch.device("cpu"))
        >>> [len(samples) for samples in times]
        [3, 3]
    """
    samples: list[list[float]] = [[] for _ in runs]
    with quiet_process():
        for run in runs:
            run()
        repeats = [max(1, math.ceil(_SHORTEST / max(seconds(run, 1, device), 1e-6))) for run in runs]
        for turn in range(rounds):
            for i in range(len(runs)):
                i = (i + turn) % len(runs)
                samples[i].append(seconds(runs[i], repeats[i], device))
    return samples
