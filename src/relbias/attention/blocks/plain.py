"""Blocks of queries by operations that autograd knows, each computed again in the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from relbias.attention.call import Call
from relbias.attention.implementation import in_transform, known_to_be
from relbias.attention.lookup import added_rows, value_rows
from relbias.attention.masks import drop, hide, safe_softmax

_LOGITS_PER_BLOCK = 2**21
"""How many logits of all items and heads a block has: 8 MiB in float32."""


def attend_plainly(call: Call) -> Tensor:
    """The output of a call, (B, H, N, Dv).

    Args:
        call: converted to its `dtype`, normalised, with all heads of k and v.
    """
    q, k = call.rotated()
    batch, heads, n, _ = q.shape
    per_row = batch * heads * k.shape[2]
    # Blocks are counted, which would fix the sizes that a compiled or exported graph leaves open.
    if not known_to_be(n * per_row > _LOGITS_PER_BLOCK):
        return _block(call, q, k, slice(0, n))
    size = max(1, _LOGITS_PER_BLOCK // per_row)
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    recompute = torch.is_grad_enabled() and not torch.compiler.is_compiling() and not in_transform()
    outs = [
        checkpoint(_block, call, q, k, rows, use_reentrant=False) if recompute else _block(call, q, k, rows)
        for rows in blocks
    ]
    return torch.cat(outs, dim=2)


def _block(call: Call, q: Tensor, k: Tensor, rows: slice) -> Tensor:
    """The output of some rows, (B, H, n, D); q and k are the turned ones."""
    logits = (q[:, :, rows] * call.factor()) @ k.mT
    for part in (added_rows(call, rows), call.masks.added(rows, q.dtype)):
        if part is not None:
            logits = logits + part
    logits = hide(logits, call.masks.allowed(rows, q.device))
    weights = safe_softmax(logits) if call.may_hide else logits.softmax(dim=-1)
    weights = drop(weights, q.shape[2], rows, call.dropout_p)
    out = weights @ call.v
    for entry in call.terms.entries:
        if entry.V is not None:
            out = out + value_rows(entry.V, entry, weights, rows)
    return out
