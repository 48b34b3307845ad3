"""Encodings over patch grids inside a host: the index of a call, and tables for another grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from relbias.attention.observe import in_backward
from relbias.encodings import Encoding, EncodingSum, Table
from relbias.plugins.binding import bound
from relbias.relations import Grid
from relbias.relations.base import check_size

Unit = Literal["patch", "image"]


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
        ValueError: N does not fit the grid, the grid is larger than a table, or a block that was checkpointed on its
            own is recomputed, when the grid of its call is not known any more.
    """
    grid = bound() if from_call else None
    if from_call and grid is None and in_backward():
        raise ValueError(
            "a block is recomputed in the backward pass and its call's grid is unknown; "
            "checkpoint with model.set_grad_checkpointing(), or whole forwards, not single blocks"
        )
    return _index(encoding, tokens, grid)


def _index(encoding: Encoding, tokens: int, grid: tuple[int, int] | None) -> Any:
    first = next(_parts([encoding])).relation
    height, width = (first.height, first.width) if grid is None else grid
    index = encoding.grid_index(height, width)
    if tokens != first.prefix_tokens + height * width:
        raise ValueError(
            f"{tokens} tokens are not {first.prefix_tokens} prefix tokens and a grid of {height}x{width} patches"
            + ("; the grid is known inside the model's forward only" if grid is None else "")
        )
    return index


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


def resize_encodings(encodings: list[Encoding], height: int, width: int, unit: Unit) -> None:
    """Give the tables of encodings the codes of another grid; those without tables only note the grid.

    Nothing is changed unless everything succeeds. A table that changes is a new parameter.

    Args:
        encodings: over a Grid, or sums of such.
        height: of the new grid, in patches.
        width: of the new grid, in patches.
        unit: what an offset keeps; see `resize_table`.

    Raises:
        ValueError: a size or the unit is wrong, no encoding has a table, or one of fixed size is not a table.
    """
    if unit not in get_args(Unit):
        raise ValueError(f'unit is "patch" or "image", got {unit!r}')
    parts = list(_parts(encodings))
    fixed = [part for part in parts if part.fixed_size]
    if not fixed:
        raise ValueError(f"{parts[0].label} takes a grid of any size as it is; there is no table to resize")
    for part in fixed:
        if not isinstance(part, Table):
            raise ValueError(f"only tables can be resized, and {part.label} is a {type(part).__name__}")
    new = [part.relation.resized(height, width) for part in parts]
    tables = [
        resize_table(part.table, part.relation, relation, unit) if isinstance(part, Table) else None
        for part, relation in zip(parts, new, strict=True)
    ]
    for part, relation, table in zip(parts, new, tables, strict=True):
        part.relation = relation
        if table is not None:
            part.table = nn.Parameter(table, requires_grad=bool(part.table.requires_grad))
    for encoding in encodings:
        for total in encoding.modules():
            if isinstance(total, EncodingSum):
                total.relation = {key: part.relation for key, part in total.encodings.items()}


def _parts(encodings: list[Encoding]) -> Iterator[Encoding]:
    for encoding in encodings:
        if isinstance(encoding, EncodingSum):
            yield from _parts(list(encoding.encodings.values()))
        else:
            yield encoding


def resize_table(table: Tensor, old: Grid, new: Grid, unit: Unit) -> Tensor:
    """A table over the codes of one grid read at the codes of another.

    In units of patches an offset of d patches keeps its numbers, and those beyond the old grid take the numbers of
    the farthest offset in their direction. In units of the image an offset keeps its numbers if it is the same part of
    the image: the offset d of h' patches reads the table bicubically at d h / h', no farther than its edge. The codes
    with a prefix token are copied.

    Args:
        table: (H, R), over the codes of `old`.
        old: the table's grid.
        new: the grid wanted, with as many prefix tokens.
        unit: "patch" or "image".

    Returns:
        (H, R'), over the codes of `new`.

    Example:
        >>> table = torch.arange(25.0)[None]
        >>> resize_table(table, Grid(3, 3), Grid(2, 2), "patch")
        tensor([[ 6.,  7.,  8., 11., 12., 13., 16., 17., 18.]])
    """
    if old.max_distance is not None:
        return table.detach().clone()
    size = (2 * old.height - 1, 2 * old.width - 1)
    patches, prefix = table.detach().split([size[0] * size[1], table.shape[1] - size[0] * size[1]], dim=1)
    patches = patches.unflatten(1, size)
    dy, dx = (torch.arange(1 - length, length, device=table.device) for length in (new.height, new.width))
    if unit == "patch":
        rows = dy.clamp(1 - old.height, old.height - 1) + old.height - 1
        columns = dx.clamp(1 - old.width, old.width - 1) + old.width - 1
        patches = patches[:, rows[:, None], columns]
    else:
        # grid_sample has the edges at -1 and 1; float64, so that an offset of the old grid is read exactly there.
        y = dy.double() * old.height / new.height / max(old.height - 1, 1)
        x = dx.double() * old.width / new.width / max(old.width - 1, 1)
        places = torch.stack(torch.meshgrid(y.clamp(-1, 1), x.clamp(-1, 1), indexing="ij")[::-1], dim=-1)
        patches = nn.functional.grid_sample(
            patches[None].double(), places[None], mode="bicubic", padding_mode="border", align_corners=True
        )[0].to(table.dtype)
    return torch.cat((patches.flatten(1), prefix), dim=1)
