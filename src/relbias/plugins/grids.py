"""Encodings over patch grids inside a host: the index of a call, and another grid for all of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relbias.attention.observe import in_backward
from relbias.encodings import Encoding, EncodingSum
from relbias.encodings.resize import Unit, check_unit
from relbias.plugins.binding import bound
from relbias.relations.base import check_size


@dataclass
class SomePatches:
    """What a host binds where patches of a call's grid may be missing, or where only its own layers know the grid; a
    whole grid that is known at once it binds as (height, width).

    Args:
        height: of the grid, in patches.
        width: of the grid, in patches.
        patches: (B, n) int64, those that are there, by number, in the order of the tokens; None for all of them. A
            layer that drops patches sets it on its way, so every call has an object of its own.
    """

    height: int
    width: int
    patches: Tensor | None = None


def index_of_call(encoding: Encoding, tokens: int, from_call: bool) -> Any:
    """The index of the attention call that runs now.

    Args:
        encoding: over a Grid, or a sum of such.
        tokens: N, those of the call.
        from_call: whether the grid is the one bound by an enclosing call; where none is, and without it, the grid is
            the relation's own.

    Returns:
        An index, or for a sum of encodings a mapping of them.

    Raises:
        ValueError: N does not fit the grid, the grid is larger than a table, a block that was checkpointed on its
            own is recomputed, when the grid of its call is not known any more, or the call is being traced.
    """
    refuse_tracing(tokens)
    grid = bound() if from_call else None
    if from_call and grid is None and in_backward():
        raise ValueError(
            "a block is recomputed in the backward pass and its call's grid is unknown; "
            "checkpoint with model.set_grad_checkpointing(), or whole forwards, not single blocks"
        )
    first = next(parts([encoding])).relation
    if not isinstance(grid, SomePatches):
        grid = SomePatches(*((first.height, first.width) if grid is None else grid))
    index = encoding.grid_index(grid.height, grid.width, grid.patches)
    patches = grid.height * grid.width if grid.patches is None else grid.patches.shape[1]
    if tokens != first.prefix_tokens + patches:
        raise ValueError(
            f"{tokens} tokens are not {first.prefix_tokens} prefix tokens and "
            + (f"a grid of {grid.height}x{grid.width}" if grid.patches is None else f"{patches} of its")
            + " patches"
            + ("" if from_call and bound() is not None else "; the grid is known inside the model's forward only")
        )
    return index


def refuse_tracing(traced: Any) -> None:
    """Refuse to be traced by what records a call of one size as that of every size.

    Args:
        traced: of the call; a tensor or one of its sizes.

    Raises:
        ValueError: torch.jit.trace or torch.fx is tracing.
    """
    if torch.jit.is_tracing() or isinstance(traced, torch.fx.Proxy):
        how = "torch.jit.trace" if torch.jit.is_tracing() else "torch.fx"
        raise ValueError(
            f"{how} cannot trace an attached model, whose grid comes with each call; use torch.export or "
            "torch.compile, forward_intermediates for features, relbias.capture for attention, or detach first"
        )


def as_grid(grid: Any) -> tuple[int, int]:
    """A grid given by a user as a tuple, or a ValueError.

    Args:
        grid: (height, width), in patches.
    """
    if not isinstance(grid, Sequence) or len(grid) != 2:
        raise ValueError(f"grid is (height, width), in patches, got {grid!r}")
    check_size("the grid's height", grid[0], 1)
    check_size("the grid's width", grid[1], 1)
    return grid[0], grid[1]


def resize_encodings(grids: Mapping[Encoding, tuple[int, int]], unit: Unit) -> None:
    """Give the tables of encodings the codes of other grids; those without tables only note the grid.

    Nothing is changed unless everything succeeds. A table that changes is a new parameter.

    Args:
        grids: encodings over a Grid, or sums of such, and the new (height, width) of each, in patches.
        unit: what an offset keeps; see `Encoding.resize`.

    Raises:
        ValueError: a size or the unit is wrong, no encoding has a table, or one cannot take another grid.
    """
    check_unit(unit)
    found = [(part, part.relation.resized(*grid)) for whole, grid in grids.items() for part in parts([whole])]
    if not any(part.fixed_size for part, _ in found):
        raise ValueError(f"{found[0][0].label} takes a grid of any size as it is; there is no table to resize")
    for part, relation in found:
        copy.deepcopy(part).resize(relation, unit)
    for part, relation in found:
        part.resize(relation, unit)
    for encoding in grids:
        for total in encoding.modules():
            if isinstance(total, EncodingSum):
                total.relation = {key: part.relation for key, part in total.encodings.items()}


def parts(encodings: list[Encoding]) -> Iterator[Encoding]:
    """The encodings themselves, sums taken apart."""
    for encoding in encodings:
        if isinstance(encoding, EncodingSum):
            yield from parts(list(encoding.encodings.values()))
        else:
            yield encoding
