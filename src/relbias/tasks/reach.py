"""Which entries of a table of distances a training can reach."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from relbias.attention import RelativeAttention
from relbias.encodings import Encoding
from relbias.encodings.sum import EncodingSum
from relbias.relations import Sequence

_FAR = 2**16  # tokens; farther than any bucket begins


@torch.no_grad()
def unreached(network: nn.Module, length: int, window: int | None = None) -> list[str]:
    """Tells of causal attention whose tables have buckets for distances that no pair of a training has.

    Args:
        network: its encodings over a sequence whose far distances share a bucket are looked at.
        length: N, of the training, in tokens.
        window: how many tokens a token attends to, itself and those before it; None for all.

    Returns:
        A line for each different such encoding; none where all buckets that a longer window uses are reached.

    Example:
        >>> from relbias.models import TransformerBlock
        >>> for line in unreached(TransformerBlock(64, num_heads=4, encoding="t5"), length=64):
        ...     print(line)
        t5: 14 of 16 buckets for earlier tokens are reached at length 64; longer windows use the others as they ...
        >>> unreached(TransformerBlock(64, num_heads=4, encoding="shaw"), length=64)
        []
    """
    lines = []
    for attention in network.modules():
        if isinstance(attention, RelativeAttention):
            found = attention.encoding
            parts = found.encodings.values() if isinstance(found, EncodingSum) else [found]
            lines += [line for part in parts if (line := _line(part, attention, length, window))]
    return list(dict.fromkeys(lines))


def _line(encoding: Any, attention: RelativeAttention, length: int, window: int | None) -> str:
    if not isinstance(encoding, Encoding) or not isinstance(encoding.relation, Sequence):
        return ""
    if encoding.extrapolation != "clipped" or encoding.makes_keys:  # what counts tokens by the keys has no distances
        return ""
    longest = _FAR if window is None else window
    near, far = (_codes(encoding, attention, min(distances, longest)) for distances in (length, _FAR))
    if len(near) == len(far):
        return ""
    return (
        f"{encoding.name}: {len(near)} of {len(far)} buckets for earlier tokens are reached at length {length}; "
        "longer windows use the others as they were drawn"
    )


def _codes(encoding: Encoding, attention: RelativeAttention, distances: int) -> set[int]:
    """The codes of the pairs of a query and the keys up to it, at distances from 0."""
    keys = torch.arange(distances, device=encoding.device)
    index = encoding.relation(1, distances, keys[-1:], keys)
    x = torch.zeros(1, 1, attention.dim, device=encoding.device)
    terms = encoding(index, x=x, attention=attention)
    codes = [entry.index.codes(device=encoding.device).flatten() for entry in terms.entries if entry.index is not None]
    return set(torch.cat(codes).unique().tolist()) if codes else set()
