"""The plain equation: what every other implementation must equal."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from relbias.attention.call import Call
from relbias.attention.implementation import Implementation
from relbias.attention.masks import drop, hide, safe_softmax
from relbias.relations.base import ALL_ROWS
from relbias.terms import Bias, Entry, scale_bias


class Reference(Implementation):
    """Every term, written down as in the equation, with all N x M weights of every head in memory.

    Half precision is computed in float32 and rounded once, at the end.
    """

    name = "reference"

    def refusal(self, call: Call) -> str | None:
        return None

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        dtype = call.q.dtype
        call = complete(call)
        weights = drop(safe_softmax(logits(call)), call.q.shape[2], ALL_ROWS, call.dropout_p)
        # Values kept by dimension, (B, H, D, M) in memory, are multiplied so, as their owner would: it rounds so.
        by_dimension = call.v.stride(-2) == 1 < call.v.stride(-1)
        out = (call.v.mT @ weights.mT).mT if by_dimension else weights @ call.v
        for entry in call.terms.entries:
            if entry.V is not None:
                out = out + _values(entry.V, entry, weights)
        return out.to(dtype), weights.to(dtype) if call.return_weights else None


def complete(call: Call) -> Call:
    """The call in its `dtype`, with q and k normalised where that is asked for and with all heads of k and v."""
    return call.converted(call.dtype).with_normalized().with_all_heads()


def logits(call: Call) -> Tensor:
    """s_ij of any call in its `dtype`, (B, H, N, M); -inf where a mask hides the key."""
    call = complete(call)
    q, k = call.rotated()
    c = call.factor()
    # Other libraries multiply q by a number c, and the products by one per head, as Swin v2 does. So does this, that
    # it has the very same numbers.
    per_head = isinstance(c, Tensor) and c.ndim == 3
    total = (q @ k.mT) * c if per_head else (q * c) @ k.mT
    for _, part in contributions(call):
        total = total + part
    added = call.masks.added(ALL_ROWS, total.dtype)
    if added is not None:
        total = total + added
    return hide(total, call.masks.allowed(ALL_ROWS, total.device))


def contributions(call: Call) -> Iterator[tuple[str, Tensor]]:
    """What the terms add to the logits one after the other, before masks; what is left is c rot(q_i) . rot(k_j).

    q . K[r] is read from the products of q with the R rows of K, so that nothing has N M D numbers.

    Args:
        call: a `complete` one.

    Returns:
        For each entry and each of u, K, Q and b that it has: the name, and c u . k_j, c (q_i + w) . K[r_ij],
        c k_j . Q[r_ij] or g_i b(i, j), broadcasting to (B, H, N, M).
    """
    q, k, c = call.q, call.k, call.factor()
    for entry in call.terms.entries:
        if entry.u is not None:
            yield "u", (k @ entry.u[:, :, None]).mT * c
        if entry.K is not None:
            queries = q if entry.w is None else q + entry.w[:, None]
            yield "K", ((queries * c) @ entry.K.mT).gather(3, _codes(entry, q))
        if entry.Q is not None:
            yield "Q", ((k * c) @ entry.Q.mT).gather(3, _codes(entry, q).mT).mT
        if entry.b is not None:
            yield "b", _bias(entry.b, entry, q)


def _codes(entry: Entry, like: Tensor) -> Tensor:
    """(B, H, N, M) int64."""
    if entry.index is None:
        raise ValueError("a table needs an index")
    codes = entry.index.codes(device=like.device)
    return codes.expand(*like.shape[:2], *codes.shape[2:])


def _bias(b: Bias, entry: Entry, q: Tensor) -> Tensor:
    """g_i b(i, j), broadcasting to (B, H, N, M)."""
    if not isinstance(b, Tensor):
        bias = b(ALL_ROWS).to(q.dtype)
    elif entry.index is None:
        bias = b
    else:
        codes = _codes(entry, q)
        bias = b.expand(*codes.shape[:2], -1).gather(2, codes.flatten(2)).view(codes.shape)
    return bias if entry.g is None else scale_bias(bias, entry.g[..., None])


def _values(table: Tensor, entry: Entry, weights: Tensor) -> Tensor:
    """sum_j a_ij V[r_ij], (B, H, N, D): the weight that falls on each code, times its row."""
    codes = _codes(entry, weights)
    mass = weights.new_zeros(*weights.shape[:3], table.shape[-2]).scatter_add(3, codes, weights)
    return mass @ table
