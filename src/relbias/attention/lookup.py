"""What terms add to the logits and to the output of some rows, without anything of size N x M x D."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.attention.call import Call
from relbias.relations import Index
from relbias.relations.kept import read_codes
from relbias.terms import Entry, scale_bias


def lookup(table: Tensor, index: Index, rows: slice) -> Tensor:
    """Read a table at the codes of some rows.

    Args:
        table: ([B,] H or 1, R).
        index: of N queries and M keys.
        rows: the queries asked for, n of N.

    Returns:
        (B or 1, H or 1, n, M).
    """
    n, m = index.shape
    # Not rows.indices(n), which fixes a length that is left open in export.
    start, stop = rows.start or 0, n if rows.stop is None else rows.stop
    # unfold takes no length that is left open, as one may be in export.
    known = not isinstance(n, torch.SymInt) and not isinstance(m, torch.SymInt)
    diagonals = index.diagonals(table.device) if known and start < stop and m else None
    if diagonals is not None:
        # Row i reads the M values from N - 1 - i on: the rows are overlapping windows, the last row first.
        values = table.index_select(-1, diagonals[n - stop : n - start + m - 1])
        values = values.unfold(-1, m, 1).flip(-2)
        return values if values.ndim == 4 else values[None]
    codes = read_codes(index, rows, table.device)
    if table.ndim == 2 and codes.shape[1] == 1:
        values = table.index_select(1, codes.flatten())  # two to five times faster than table[:, codes]
        return values.view(table.shape[0], codes.shape[0], *codes.shape[2:]).transpose(0, 1)
    table = table if table.ndim == 3 else table[None]
    batch, heads = torch.broadcast_shapes(table.shape[:2], codes.shape[:2])
    flat = codes.long().flatten(2).expand(batch, heads, -1)
    return table.expand(batch, heads, -1).gather(2, flat).view(batch, heads, *codes.shape[2:])


def gather_codes(scores: Tensor, codes: Tensor) -> Tensor:
    """The scores over the codes, (B, H, n, R), at codes (B or 1, H or 1, n, M): (B, H, n, M)."""
    return scores.gather(-1, codes.expand(*scores.shape[:2], *codes.shape[2:]))


def added_rows(call: Call, rows: slice) -> Tensor | None:
    """All that is added to c rot(q) . rot(k) in some rows, but the masks: (B or 1, H or 1, n, M), or None.

    Args:
        call: converted to its `dtype`, with q and k normalised and k with all heads; they are not rotated here.
        rows: the queries asked for, n of N.
    """
    total: Tensor | None = None
    for entry in call.terms.entries:
        for part in (_scaled_part(call, entry, rows), _bias_part(call, entry, rows)):
            if part is not None:
                total = part if total is None else total + part
    return total


def value_rows(table: Tensor, entry: Entry, weights: Tensor, rows: slice) -> Tensor:
    """What V adds to the output of some rows: the weight that falls on each code, times its row.

    Args:
        table: V, ([B,] H or 1, R, D).
        entry: whose index gives the codes.
        weights: (B, H, n, M).
        rows: the queries that they are of, n of N.

    Returns:
        (B, H, n, D).
    """
    if entry.index is None:
        raise ValueError("a table needs an index")
    codes = read_codes(entry.index, rows, weights.device).long().expand(weights.shape)
    mass = weights.new_zeros(*weights.shape[:3], table.shape[-2]).scatter_add(3, codes, weights)
    return mass @ table


def _scaled_part(call: Call, entry: Entry, rows: slice) -> Tensor | None:
    """C (u . k_j + (q_i + w) . K[r_ij] + k_j . Q[r_ij])."""
    index = entry.index
    total: Tensor | None = None
    if entry.u is not None:
        total = (call.k @ entry.u[..., None]).mT
    codes = None
    if index is not None and (entry.K is not None or entry.Q is not None):
        codes = read_codes(index, rows, call.q.device).long()
    if entry.K is not None and codes is not None:
        queries = call.q[:, :, rows]
        if entry.w is not None:
            queries = queries + entry.w[:, None]
        part = gather_codes(queries @ entry.K.mT, codes)
        total = part if total is None else total + part
    if entry.Q is not None and codes is not None:
        part = gather_codes(call.k @ entry.Q.mT, codes.mT).mT
        total = part if total is None else total + part
    return None if total is None else total * call.factor()


def _bias_part(call: Call, entry: Entry, rows: slice) -> Tensor | None:
    """g_i b(i, j)."""
    if entry.b is None:
        return None
    if not isinstance(entry.b, Tensor):
        part = entry.b(rows).to(call.dtype)
    elif entry.index is not None:
        return _gated(lookup(entry.b, entry.index, rows), entry, rows)
    else:
        part = entry.b.view(*[1] * (4 - entry.b.ndim), *entry.b.shape)
        part = part if part.shape[2] == 1 else part[:, :, rows]
    return _gated(part, entry, rows)


def _gated(bias: Tensor, entry: Entry, rows: slice) -> Tensor:
    return bias if entry.g is None else scale_bias(bias, entry.g[..., rows, None])
