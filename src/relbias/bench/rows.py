"""The rows of a table of costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from relbias.bench.attentions import Attentions
from relbias.bench.candidates import DIRECTIONS, Candidate
from relbias.bench.cases import CASES, Shape
from relbias.bench.layers import Layers
from relbias.bench.memory import peak_memory
from relbias.bench.timing import interleaved

LEVELS: dict[str, Callable[..., Attentions | Layers]] = {"attention": Attentions, "layer": Layers}
"""What is measured: attention on given q, k and v, or layers with their projections."""


@dataclass(frozen=True)
class Row:
    """One measurement.

    Args:
        level: "attention" or "layer".
        case: a name of `CASES`.
        batch: B.
        heads: H.
        tokens: N.
        head_dim: D.
        dtype: of q, k, v and parameters, such as "float32".
        device: "cpu" or "cuda".
        encoding: its name.
        implementation: its name, "plain" for attention without any relation, or a peer's.
        direction: "forward" or "forward + backward".
        rounds: how many.
        time_ms: the median over the rounds, in milliseconds.
        time_ratio: to plain attention in the same round, the median.
        time_ratio_low: the first quartile.
        time_ratio_high: the third quartile.
        memory_mib: see `peak_memory`, in MiB.
        memory_ratio: to plain attention.
        error: the largest against the reference in float64, over the largest number of its tensor; None for plain
            attention and for layers of other libraries.
        note: why there are no numbers, or "".
    """

    level: str
    case: str
    batch: int
    heads: int
    tokens: int
    head_dim: int
    dtype: str
    device: str
    encoding: str
    implementation: str
    direction: str
    rounds: int
    time_ms: float | None = None
    time_ratio: float | None = None
    time_ratio_low: float | None = None
    time_ratio_high: float | None = None
    memory_mib: float | None = None
    memory_ratio: float | None = None
    error: float | None = None
    note: str = ""


def benchmark(
    case: str,
    shape: Shape,
    encoding: str,
    implementations: Sequence[str],
    *,
    level: str = "attention",
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    rounds: int = 7,
    peers: bool = True,
) -> Iterator[Row]:
    """Measure plain attention, implementations and peers side by side.

    The ratios are to plain attention of the same q, k and v in the same round, with one thread; the terms are made anew
    in each call, as in each step of a model.

    Args:
        case: a name of `CASES`.
        shape: (B, H, N, D) of q, k and v.
        encoding: its name.
        implementations: names of `list_implementations()`.
        level: a name of `LEVELS`.
        dtype: of q, k, v and parameters.
        device: "cpu" or "cuda".
        rounds: how many samples of each.
        peers: whether to measure also what others do.

    Returns:
        The rows, direction by direction. One that is refused says why and has no numbers.

    Raises:
        ValueError: the encoding or the shape does not fit the case.

    Example:
        >>> rows = list(benchmark("sequence", (1, 2, 16, 8), "t5", ["folded"], rounds=2, peers=False))
        >>> [(row.implementation, row.direction) for row in rows[:2]]
        [('plain', 'forward'), ('folded', 'forward')]
    """
    problem = CASES[case].make(case, shape)
    place = torch.device(device)
    group = LEVELS[level](problem, encoding, dtype, place)
    candidates = [group.plain(), *(group.implementation(name) for name in implementations)]
    if peers:
        candidates += group.peers()
    batch, heads, tokens, head_dim = shape
    name = str(dtype).removeprefix("torch.")
    for direction in DIRECTIONS:
        common: dict[str, Any] = {
            "level": level,
            "case": case,
            "batch": batch,
            "heads": heads,
            "tokens": tokens,
            "head_dim": head_dim,
            "dtype": name,
            "device": device,
            "encoding": encoding,
            "direction": direction,
            "rounds": rounds,
        }
        asked = [candidate for candidate in candidates if direction in candidate.directions]
        reasons = {candidate.name: candidate.refused(direction) for candidate in asked}
        able = [candidate for candidate in asked if reasons[candidate.name] is None]
        numbers = dict(zip((c.name for c in able), _measure(able, direction, rounds, place), strict=True))
        for candidate in asked:
            reason = reasons[candidate.name]
            measured = numbers.get(candidate.name, {"note": reason})
            yield Row(implementation=candidate.name, **common, **measured)


def _measure(
    candidates: list[Candidate], direction: str, rounds: int, device: torch.device
) -> Iterator[dict[str, float | None]]:
    """The numbers of each candidate, of which the first is plain attention."""
    runs = [lambda candidate=candidate: candidate.run(direction) for candidate in candidates]
    times = interleaved(runs, rounds, device)
    peaks = [peak_memory(run, device) for run in runs]
    for candidate, samples, peak in zip(candidates, times, peaks, strict=True):
        ratios = [mine / plain for mine, plain in zip(samples, times[0], strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if rounds > 1 else ratios * 3
        yield {
            "time_ms": 1000 * statistics.median(samples),
            "time_ratio": statistics.median(ratios),
            "time_ratio_low": low,
            "time_ratio_high": high,
            "memory_mib": peak / 2**20,
            "memory_ratio": peak / peaks[0],
            "error": candidate.error(direction),
        }
