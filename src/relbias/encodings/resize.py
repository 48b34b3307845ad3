"""Tables for other sizes of their relation."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from relbias.relations import Relation, Sequence
from relbias.relations.base import num_prefix_codes
from relbias.relations.lattice import Lattice

Unit = Literal["patch", "image"]


def check_unit(unit: Unit) -> None:
    """Raise ValueError unless the unit is known."""
    if unit not in get_args(Unit):
        raise ValueError(f'unit is "patch" or "image", got {unit!r}')


def differ_in_size_alone(old: Relation, new: Relation) -> bool:
    """Whether two relations are equal but for the sizes of a grid or volume."""
    if type(old) is type(new) and isinstance(old, Lattice) and isinstance(new, Lattice):
        return new.resized(*old.sizes) == old
    return new == old


def resize_table(table: Tensor, old: Relation, new: Relation, unit: Unit) -> Tensor:
    """A table over the codes of one relation read at the codes of another.

    In units of patches an offset keeps its numbers, and those beyond the old relation take the numbers of the farthest
    offset in their direction. In units of the image an offset keeps its numbers if it is the same part of the image:
    the offset d of h' patches reads the table cubically at d h / h', no farther than its edge. Where offsets are
    clipped, as on a sequence, h is the largest distance. The codes with a prefix token are copied.

    Args:
        table: (H, R), over the codes of `old`.
        old: the table's relation, a Grid, a Volume or a Sequence with max_distance.
        new: the relation wanted, of the same class with as many prefix tokens, with max_distance if `old` has one.
        unit: "patch" or "image".

    Returns:
        (H, R'), over the codes of `new`.

    Raises:
        ValueError: the unit is unknown, or a relation is not of these.

    Example:
        >>> from relbias.relations import Grid
        >>> table = torch.arange(25.0)[None]
        >>> resize_table(table, Grid(3, 3), Grid(2, 2), "patch")
        tensor([[ 6.,  7.,  8., 11., 12., 13., 16., 17., 18.]])
    """
    old_axes, prefix = _axes(old), getattr(old, "prefix_tokens", 0)
    if type(old) is not type(new):
        raise ValueError(f"a table over {old!r} takes another size of it, got {new!r}; give the whole relation")
    new_axes = _axes(new)
    if prefix != getattr(new, "prefix_tokens", 0) or (_max_distance(old) is None) != (_max_distance(new) is None):
        raise ValueError(f"a table over {old!r} takes another size of it, got {new!r}")
    check_unit(unit)  # after the relations: resize(20, 20) has a number in its place
    offsets, others = table.detach().split([table.shape[1] - num_prefix_codes(prefix), num_prefix_codes(prefix)], dim=1)
    values = offsets.unflatten(1, [2 * limit + 1 for limit, _ in old_axes])
    for axis, ((limit, length), (new_limit, new_length)) in enumerate(zip(old_axes, new_axes, strict=True), start=1):
        places = torch.arange(-new_limit, new_limit + 1, device=table.device)
        if unit == "patch" or length == new_length:
            values = values.index_select(axis, places.clamp(-limit, limit) + limit)
        else:
            places = (places.double() * length / max(new_length, 1)).clamp(-limit, limit)
            values = read_between(values, axis, places + limit)
    return torch.cat((values.flatten(1), others), dim=1)


def read_between(values: Tensor, axis: int, places: Tensor) -> Tensor:
    """Values along an axis read at fractional places, by cubic convolution.

    Args:
        values: of any shape.
        axis: of length L.
        places: (n,) float64, in entries; before the first and after the last their values go on.

    Returns:
        Shape and dtype of `values`, with n entries along the axis.
    """
    rows = values.movedim(axis, -1)
    length = rows.shape[-1]
    # grid_sample has the first entry at -1 and the last at 1; float64, so that an entry is read exactly at its place.
    x = 2 * places / max(length - 1, 1) - 1
    places = torch.stack((x, torch.zeros_like(x)), dim=-1)[None, None]
    read = nn.functional.grid_sample(
        rows.reshape(1, -1, 1, length).double(), places, mode="bicubic", padding_mode="border", align_corners=True
    )
    return read.view(*rows.shape[:-1], -1).to(values.dtype).movedim(-1, axis)


def _max_distance(relation: Relation) -> int | None:
    return relation.max_distance if isinstance(relation, Lattice | Sequence) else None


def _axes(relation: Relation) -> list[tuple[int, int]]:
    """Of every axis the largest distance with a code, and the length that is stretched in units of the image."""
    limit = _max_distance(relation)
    if isinstance(relation, Sequence) and limit is not None:
        return [(limit, limit)]
    if isinstance(relation, Lattice):
        return [(size - 1, size) if limit is None else (limit, limit) for size in relation.sizes]
    raise ValueError(f"only tables over a Grid, a Volume or a Sequence with max_distance are resized, got {relation!r}")
