"""From a call to the parts that its blocks are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.attention.blocks.coded import CodedBias, CodedTable
from relbias.attention.blocks.coded_keys import CodedKeys
from relbias.attention.blocks.diagonals import DiagonalBias, DiagonalKeys, DiagonalTable
from relbias.attention.blocks.given import Given, Hidden, Queries, Table
from relbias.attention.blocks.part import Part
from relbias.attention.blocks.turn import turned
from relbias.attention.call import Call
from relbias.attention.masks import Masks
from relbias.relations import Index
from relbias.relations.base import can_check_values
from relbias.terms import Entry

_CODES = 1024
"""Up to how many codes the products of keys with all of them are made, whatever the number of diagonals."""


@dataclass(frozen=True)
class Plan:
    """What the logits and values of a call are made of, beside the product of q and k, and v.

    Args:
        scale: the factor of that product; 1 where q is multiplied by c already.
        parts: are added to the logits, those that go by diagonals first.
        values: are added to the values.
        masks: of the call.
        by_heads: whether to go through all queries of some heads before the next heads.
    """

    scale: float
    parts: tuple[Part, ...]
    values: tuple[Table, ...]
    masks: Masks
    by_heads: bool = False


def unplanned(call: Call) -> bool:
    """Whether a call has something of which there is no part: a function of the rows, a gated matrix, or dropout."""
    for entry in call.terms.entries:
        matrix = isinstance(entry.b, Tensor)
        if entry.b is not None and (not matrix or (entry.index is None and entry.g is not None)):
            return True
    return call.dropout_p > 0.0


class _Tensors(list):
    """The tensors that a plan refers to; one that is used twice is there once."""

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor."""
        for number, known in enumerate(self):
            if known is tensor:
                return number
        self.append(tensor)
        return len(self) - 1


def plan_call(call: Call) -> tuple[Plan, list[Tensor]]:
    """The plan of a call and its tensors: q, k, v, and those of the parts.

    What depends on N + M or on the number of codes alone is computed here, by operations that autograd knows.

    Args:
        call: converted to its `dtype`, normalised, with all heads of k and v.
    """
    c = call.factor()
    q, k = turned(call)
    plain = q is call.q
    us = [entry.u for entry in call.terms.entries if entry.u is not None]
    queries = q if not us or not plain else q + sum(us[1:], us[0])[:, None]
    tensors = _Tensors()
    # The order of the first three is fixed.
    # A factor within the products costs no pass over q; vectors by code are multiplied with q times c as well.
    shared = plain and not us and any(entry.K is not None and entry.w is None for entry in call.terms.entries)
    scale = 1.0 if shared or isinstance(c, Tensor) else c
    main = rows_in_order(queries if scale is c else queries * c)
    tensors.extend((main, rows_in_order(k), rows_in_order(call.v)))
    unrotated_q = main if shared else None
    unrotated_k = tensors[1] if plain else rows_in_order(call.k)
    if us and not plain:
        column = (call.k @ sum(us[1:], us[0])[..., None]).mT * c
        extra: list[Part] = [Given(tensors.number(column))]
    else:
        extra = []
    diagonal: Tensor | None = None
    values: list[Table] = []
    for entry in call.terms.entries:
        if entry.index is None:
            if isinstance(entry.b, Tensor):
                extra.append(Given(tensors.number(entry.b.view(*[1] * (4 - entry.b.ndim), *entry.b.shape))))
            continue
        codes = entry.index.diagonals(q.device)
        if entry.b is not None:
            bias, gated = _bias(entry, call)
            if gated is not None:
                extra.append(Queries(tensors.number(gated[0]), _table(gated[1], entry.index, codes, tensors, call)))
            if bias is not None and codes is not None:
                part = bias.index_select(-1, codes)
                diagonal = part if diagonal is None else diagonal + part
            elif bias is not None:
                extra.append(CodedBias(tensors.number(bias), entry.index))
        if entry.K is not None:
            if entry.w is not None:
                x = ((call.q + entry.w[:, None]) * c).contiguous()
            else:
                unrotated_q = (call.q * c).contiguous() if unrotated_q is None else unrotated_q
                x = unrotated_q
            extra.append(Queries(tensors.number(x), _table(_four(entry.K), entry.index, codes, tensors, call)))
        if entry.Q is not None:
            rows, number = _four(entry.Q) * c, tensors.number(unrotated_k)
            if codes is None or rows.shape[2] <= max(_CODES, len(codes) // 2):
                extra.append(CodedKeys(number, tensors.number(rows), entry.index, codes, call.masks.n))
            else:
                table = _diagonal_table(rows, codes, tensors, call)
                extra.append(DiagonalKeys(number, table.rows, table.first, table.n))
        if entry.V is not None:
            values.append(_table(_four(entry.V), entry.index, codes, tensors, call))
    added = call.masks.attn_mask
    if added is not None and added.dtype != torch.bool:
        added = added.to(call.dtype)
        extra.append(Given(tensors.number(added.view(*[1] * (4 - added.ndim), *added.shape))))
    diagonal = _with_hidden(diagonal, call)
    parts: list[Part] = []
    if diagonal is not None:
        parts.append(DiagonalBias(tensors.number(diagonal), call.masks.n))
    others = replace(call.masks, is_causal=False, window=None)
    others = (
        others if others.attn_mask is None or others.attn_mask.dtype == torch.bool else replace(others, attn_mask=None)
    )
    if not others.empty:
        extra.append(Hidden(others))
    parts.extend(sorted(extra, key=lambda part: not part.skews))
    # What is kept by rows is made once where the heads come innermost, what is kept by heads where the rows do.
    by_rows = any(part.by_rows for part in parts) or any(not table.skews for table in values)
    by_heads = not by_rows and any(isinstance(part, CodedKeys) for part in parts)
    parts = [replace(part, by_heads=by_heads) if isinstance(part, CodedKeys) else part for part in parts]
    return Plan(scale, tuple(parts), tuple(values), call.masks, by_heads), list(tensors)


def rows_in_order(x: Tensor) -> Tensor:
    """X, (..., D), with the numbers of a vector one after the other, as torch's kernels read them."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _four(table: Tensor) -> Tensor:
    """([B,] H or 1, R, D) as (B or 1, H or 1, R, D)."""
    return table if table.ndim == 4 else table[None]


def _bias(entry: Entry, call: Call) -> tuple[Tensor | None, tuple[Tensor, Tensor] | None]:
    """A table b as (B or 1, H or 1, R), and apart from it what is multiplied by the gate, as vectors of one number.

    -inf stays outside of the product: 0 times inf is not a number.
    """
    table = entry.b
    if not isinstance(table, Tensor):
        raise TypeError("a function has no table")
    table = table if table.ndim == 3 else table[None]
    if entry.g is None:
        return table, None
    finite = table.isfinite()
    gate = entry.g[..., None].expand(*call.q.shape[:3], 1).contiguous()
    factor = torch.where(finite, table, 0.0)[..., None]
    if can_check_values(table) and bool(finite.all()):
        return None, (gate, factor)
    return torch.where(finite, 0.0, table), (gate, factor)


def _table(table: Tensor, index: Index, codes: Tensor | None, tensors: _Tensors, call: Call) -> Table:
    """How vectors, (B or 1, H or 1, R, D), are read: by diagonals, of which equal ones at either end count once."""
    if codes is None:
        return CodedTable(tensors.number(table.contiguous()), index)
    return _diagonal_table(table, codes, tensors, call)


def _diagonal_table(table: Tensor, codes: Tensor, tensors: _Tensors, call: Call) -> DiagonalTable:
    first, last = 0, len(codes) - 1
    if can_check_values(codes):  # on another device it would wait
        changes = (codes[1:] != codes[:-1]).nonzero()
        first, last = (int(changes[0]), int(changes[-1]) + 1) if len(changes) else (0, 0)
    rows = table.index_select(2, codes[first : last + 1])
    return DiagonalTable(tensors.number(rows), first, call.masks.n)


def _with_hidden(diagonal: Tensor | None, call: Call) -> Tensor | None:
    """The bias of the diagonals, (B or 1, H or 1, N + M - 1), with -inf where the causal mask and the window hide."""
    masks = call.masks
    if not masks.is_causal and masks.window is None:
        return diagonal
    offsets = torch.arange(masks.n + masks.m - 1, device=call.q.device) - (masks.m - 1)
    hidden = torch.zeros_like(offsets, dtype=torch.bool)
    if masks.is_causal:
        hidden = offsets > 0
    if masks.window is not None:
        left, right = masks.window
        hidden = hidden | (offsets < -left) | (offsets > right)
    diagonal = torch.zeros(1, 1, len(offsets), dtype=call.dtype, device=call.q.device) if diagonal is None else diagonal
    return diagonal.masked_fill(hidden, -torch.inf)
