"""Moves a model's own tables of relative position biases into attached ones, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import Table
from relbias.plugins import engine
from relbias.plugins.grids import parts
from relbias.plugins.timm.hosts import find, name_of

with extra("vision"):
    from timm.layers import RelPosMlp

_TABLE = "relative_position_bias_table"
_TAKEN = "relbias_bias_tables_taken"
"""The attribute of a model whose own tables have been moved."""


def take_bias_tables(model: nn.Module) -> None:
    """Move the model's own tables of relative position biases into the attached ones, in place.

    The output stays what it was. Each attached table gets what the layer's own one has for the same pairs, added to
    what it has, and the model's own are zero afterwards; `detach` wants them given back first. From then on `resize`
    and other options of the encoding act on what the model had learned. The model's own tables stay among its
    parameters: freeze them, or both are trained.

    The tables of Swin, MaxViT, CoAtNet, BEiT and of those relative position ViTs that have one are known. Theirs have
    a row for each offset between patches, then one each for class token to patch, patch to class token and class token
    to itself; those of MaxViT's authors hold the offsets of keys from queries, the opposite of ours.

    Args:
        model: of timm, given to `attach` with the encoding "table", alone or in a sum.

    Raises:
        ValueError: nothing is attached, or no table; the model has no such tables; an attached one is of another grid
            or shared otherwise than the model's own. Nothing is changed then.

    Example:
        >>> import timm, torch
        >>> from relbias.plugins.timm import attach, detach
        >>> model = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1)).eval()
        >>> before = model.layers[0].blocks[0].attn.relative_position_bias_table.T.clone()
        >>> attach(model, "table")
        >>> take_bias_tables(model)
        >>> torch.equal(model.layers[0].blocks[0].attn.encoding.table, before)
        True
    """
    with torch.no_grad():
        for own, attached in _pairs(model):
            attached.table.add_(_to_attached(own))
            own.zero_()
    setattr(find(model)[0], _TAKEN, True)


def give_bias_tables(model: nn.Module) -> None:
    """Move the attached tables into the model's own tables of relative position biases, in place.

    The inverse of `take_bias_tables`. The output stays what it was, after `detach` too, if nothing but the table is
    attached: so a model trained with an attached table becomes one of timm's own again.

    Args:
        model: of timm, given to `attach` with the encoding "table", alone or in a sum.

    Raises:
        ValueError: as in `take_bias_tables`.

    Example:
        >>> import timm, torch
        >>> from relbias.plugins.timm import attach, detach
        >>> model = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1)).eval()
        >>> attach(model, "table")
        >>> table = torch.nn.init.normal_(model.layers[0].blocks[0].attn.encoding.table)
        >>> trained = model(torch.zeros(1, 3, 224, 224))
        >>> give_bias_tables(model)
        >>> detach(model)
        >>> torch.allclose(model(torch.zeros(1, 3, 224, 224)), trained, atol=1e-6)
        True
    """
    with torch.no_grad():
        for own, attached in _pairs(model):
            own.add_(_to_own(attached.table, own))
            attached.table.zero_()
    vars(find(model)[0]).pop(_TAKEN, None)


def check_not_taken(root: nn.Module) -> None:
    """Refuse a model that would lose what it had learned if its encodings went.

    Args:
        root: the model.

    Raises:
        ValueError: `take_bias_tables` has moved its own tables into the attached ones.
    """
    if hasattr(root, _TAKEN):
        raise ValueError(
            f"{name_of(root)} has its own bias tables in the encodings, since take_bias_tables, and would lose them; "
            "call give_bias_tables(model) first"
        )


def _to_attached(own: Tensor) -> Tensor:
    """A model's table in the order of the codes of a Grid, (H, R).

    Args:
        own: (R, H), the codes in our order, or (H, 2 height - 1, 2 width - 1), the opposite offsets.
    """
    return own.T if own.ndim == 2 else own.flip(1, 2).flatten(1)


def _to_own(table: Tensor, own: Tensor) -> Tensor:
    """The inverse of `_to_attached`, in the shape of a model's table."""
    return table.T if own.ndim == 2 else table.view(own.shape).flip(1, 2)


def _pairs(model: nn.Module) -> list[tuple[nn.Parameter, Table]]:
    """The model's own tables with those attached that see the same pairs, each once."""
    root, host = find(model)
    engine.encodings(root)  # raises where nothing is attached
    found: dict[int, tuple[nn.Parameter, Table]] = {}
    for site in host.sites(root, host.grid(root)):
        holder = _holder(root, site.module)
        if holder is None:
            continue
        own, attached = getattr(holder, _TABLE), _attached_table(site.module)
        if attached.relation != site.relation or _to_attached(own).shape != attached.table.shape:
            raise ValueError(
                f"an attached table is over {attached.relation!r}, the model's own over {site.relation!r}; "
                "`resize` the attached ones, or attach without grid"
            )
        found.setdefault(id(own), (own, attached))
        if found[id(own)][1] is not attached:
            raise ValueError(
                "layers that share a table of the model have attached ones of their own; attach with shared=True"
            )
    pairs = list(found.values())
    if len({id(attached) for _, attached in pairs}) < len(pairs):
        raise ValueError("layers with tables of their own share an attached one; attach a table without sharing it")
    if not pairs:
        raise ValueError(f"{name_of(root)} has no table of relative position biases: {_why_none(root)}")
    return pairs


def _holder(root: Any, attention: Any) -> nn.Module | None:
    """The module that has the table of an attention module: itself, its child, or one that all layers share."""
    places = (
        attention,
        getattr(attention, "rel_pos", None),
        getattr(root, "rel_pos_bias", None),
        getattr(root, "shared_rel_pos", None),
    )
    return next((place for place in places if getattr(place, _TABLE, None) is not None), None)


def _attached_table(attention: Any) -> Table:
    tables = [part for part in parts([attention.encoding]) if isinstance(part, Table)]
    if len(tables) != 1 or tables[0].strength is not None:
        raise ValueError(
            f"biases can be moved into one 'table' without strength in each layer, got {attention.encoding!r}"
        )
    return tables[0]


def _why_none(root: nn.Module) -> str:
    for name, module in root.named_modules():
        if isinstance(module, RelPosMlp) or name.endswith(("cpb_mlp", "meta_mlp")):
            return f"a network makes its biases, at {name}"
    return "its layers add none"
