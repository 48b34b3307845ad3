"""The plain equation: what every other implementation must equal."""

from __future__ import annotations

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
        call = call.converted(call.dtype).with_normalized().with_all_heads()
        q, k, v = call.q, call.k, call.v
        q_turned, k_turned = call.rotated()

        # c is multiplied with q first, as other libraries' attention does, so that theirs has the very same numbers.
        logits = (q_turned * call.factor()) @ k_turned.mT
        for entry in call.terms.entries:
            products = _products(entry, q, k)
            if products is not None:
                logits = logits + products * call.factor()
            if entry.b is not None:
                logits = logits + _bias(entry.b, entry, q)
        added = call.masks.added(ALL_ROWS, q.dtype)
        if added is not None:
            logits = logits + added
        logits = hide(logits, call.masks.allowed(ALL_ROWS, q.device))

        weights = drop(safe_softmax(logits), q.shape[2], ALL_ROWS, call.dropout_p)
        out = weights @ v
        for entry in call.terms.entries:
            if entry.V is not None:
                out = out + _values(entry.V, entry, weights)
        return out.to(dtype), weights.to(dtype) if call.return_weights else None


def _codes(entry: Entry, like: Tensor) -> Tensor:
    """(B, H, N, M) int64."""
    if entry.index is None:
        raise ValueError("a table needs an index")
    codes = entry.index.codes(device=like.device)
    return codes.expand(*like.shape[:2], *codes.shape[2:])


def _products(entry: Entry, q: Tensor, k: Tensor) -> Tensor | None:
    """The sum u . k_j + (q_i + w) . K[r_ij] + k_j . Q[r_ij], broadcasting to (B, H, N, M); None without any of them.

    q . K[r] is read from the products of q with the R rows of K, so that nothing has N M D numbers.
    """
    parts = []
    if entry.u is not None:
        parts.append((k @ entry.u[:, :, None]).mT)
    if entry.K is not None:
        queries = q if entry.w is None else q + entry.w[:, None]
        parts.append((queries @ entry.K.mT).gather(3, _codes(entry, q)))
    if entry.Q is not None:
        parts.append((k @ entry.Q.mT).gather(3, _codes(entry, q).mT).mT)
    return sum(parts[1:], parts[0]) if parts else None


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
