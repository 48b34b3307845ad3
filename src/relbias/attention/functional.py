"""relative_attention: the equation, and the choice of how to compute it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relbias._nearest import nearest
from relbias.attention.blockwise import Blockwise, has_own_backward
from relbias.attention.call import Call
from relbias.attention.flex import Flex
from relbias.attention.folded import Folded
from relbias.attention.implementation import Implementation, known_to_be
from relbias.attention.masks import Window
from relbias.attention.observe import notify
from relbias.attention.reference import Reference
from relbias.terms import Terms

IMPLEMENTATIONS: Mapping[str, Implementation] = {i.name: i for i in (Folded(), Blockwise(), Reference(), Flex())}
"""By name, in the order in which "auto" tries them."""

_LARGEST_MASK = 2**20
"""Up to how many numbers "auto" lets a mask, or the weights that V needs, have on CPU: 4 MiB in float32. `blockwise`
is faster from there on."""
_LARGEST_MASK_ELSEWHERE = 2**24
"""The same on other devices, and where `blockwise` goes through autograd, so that only its memory speaks for it."""
_TRAINED = 2**18
"""From how many logits on `blockwise` is faster on CPU than a trained mask that all items share."""

_NEVER_COMPILES = '"auto" never compiles; name it to have it'


@dataclass(frozen=True)
class Explanation:
    """How a call is computed, and why not otherwise.

    Args:
        chosen: the name of the implementation.
        reasons: for each other implementation why it was not chosen.
    """

    chosen: str
    reasons: Mapping[str, str]

    def __str__(self) -> str:
        return "\n".join([self.chosen, *(f"  not {name}: {reason}" for name, reason in self.reasons.items())])


def list_implementations() -> list[str]:
    """The names of the implementations, in the order in which "auto" tries them; it leaves out those that compile.

    Example:
        >>> list_implementations()
        ['folded', 'blockwise', 'reference', 'flex']
    """
    return list(IMPLEMENTATIONS)


def _choose(call: Call, implementation: str) -> tuple[str, dict[str, str]]:
    """The name of the implementation, and why those before it were not chosen."""
    if implementation == "auto":
        reasons: dict[str, str] = {}
        for name, candidate in IMPLEMENTATIONS.items():
            reason = candidate.refusal(call) or (_NEVER_COMPILES if candidate.compiles else None)
            if reason is None and name == "folded":
                reason = _against_a_mask(call)
            if reason is None:
                return name, reasons
            reasons[name] = reason
    if implementation not in IMPLEMENTATIONS:
        names = ["auto", *IMPLEMENTATIONS]
        raise ValueError(f"there is no implementation {implementation!r}; {nearest(implementation, names)}")
    reason = IMPLEMENTATIONS[implementation].refusal(call)
    if reason is not None:
        raise ValueError(f"implementation={implementation!r} cannot compute this: {reason}; use 'auto' or 'reference'")
    return implementation, {}


def _explain(call: Call, implementation: str) -> Explanation:
    name, reasons = _choose(call, implementation)
    if implementation == "auto":
        return Explanation(name, reasons | _others(call, f"{name} comes first", {*reasons, name}, auto=True))
    return Explanation(name, _others(call, f"{name} was asked for", {name}))


def _others(call: Call, reason: str, known: set[str], *, auto: bool = False) -> dict[str, str]:
    """Why the implementations that are not yet known of were not chosen: they cannot, or else for the reason given."""
    return {
        name: i.refusal(call) or (_NEVER_COMPILES if i.compiles and auto else reason)
        for name, i in IMPLEMENTATIONS.items()
        if name not in known
    }


def _against_a_mask(call: Call) -> str | None:
    """Why "auto" does not take `folded`; None if it does."""
    fast = call.q.device.type == "cpu" and has_own_backward(call)
    largest = _LARGEST_MASK if fast else _LARGEST_MASK_ELSEWHERE
    if known_to_be(_mask_size(call) > largest):
        return f"its mask or weights would have {_mask_size(call)} numbers, more than {largest}"
    batch, heads, n, m = *call.q.shape[:3], call.k.shape[2]
    # A mask that differs by item costs blockwise as much as torch's plain attention.
    shared = fast and _mask_size(call) <= heads * n * m
    if shared and batch * heads * n * m > _TRAINED and _bias_is_trained(call):
        return "its mask would be trained, for which torch's fused attention has no gradient on CPU"
    return None


def _bias_is_trained(call: Call) -> bool:
    """Whether a bias needs a gradient."""
    biases = (entry.b for entry in call.terms.entries)
    return torch.is_grad_enabled() and any(isinstance(b, Tensor) and b.requires_grad for b in biases)


def _mask_size(call: Call) -> int:
    """How many numbers the mask of `folded`, or the weights that it makes for V, have at most."""
    batch, heads, n, m = *call.q.shape[:3], call.k.shape[2]
    size = 0 if call.masks.only_causal else batch * n * m
    for entry in call.terms.entries:
        if not (entry.K is entry.Q is entry.V is entry.u is entry.g is None):
            size = batch * heads * n * m
        elif entry.b is not None:
            per_item = entry.index is not None and entry.index.batch_heads[0] > 1
            # What a function returns is not known before it is called: it may differ by item.
            per_item = per_item or not isinstance(entry.b, Tensor) or entry.b.ndim > 2
            size = max(size, (batch if per_item or not call.masks.empty else 1) * heads * n * m)
    return size


def relative_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms | None = None,
    *,
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
    window: Window | None = None,
    document_ids: Tensor | None = None,
    dropout_p: float = 0.0,
    scale: float | Tensor | None = None,
    normalize: bool = False,
    implementation: str = "auto",
    return_weights: bool = False,
) -> Any:
    r"""Attention with relations between tokens.

    .. math::
        s_{ij} &= c_h [ rot(q_i) \cdot rot(k_j) + u \cdot k_j
                  + \sum_t ((q_i + w_t) \cdot K_t[r_t] + k_j \cdot Q_t[r_t]) ]
                  + \sum_t g_{t,i} b_t(i, j) + mask_{ij} \\
        o_i &= \sum_j softmax_j(s)_{ij} (v_j + \sum_t V_t[r_t])

    The sum runs over the entries t of `terms`, r_t is the code that the entry's index gives for (i, j). With N != M the
    queries are the last N positions, in the index, the causal mask, the window and the documents alike. A query that
    may attend to nothing gets output 0. Under autocast q, k and v are cast as scaled_dot_product_attention casts them.

    Args:
        q: (B, H, N, D), the queries, any floating dtype.
        k: (B, Hkv, M, D), the keys, of the same dtype. Hkv divides H; query head h meets key head h // (H / Hkv).
        v: (B, Hkv, M, D), the values, of the same dtype.
        terms: what the relations add; made by an encoding.
        attn_mask: broadcasting to (B, H, N, M); boolean True = may attend, or floating, added to the logits.
        key_padding_mask: (B, M) bool, True = padding.
        is_causal: hide the keys after the query.
        window: (left, right), in positions: only keys with -left <= j - i <= right.
        document_ids: (B, M) integers: only keys of the query's document.
        dropout_p: the probability of dropping an attention weight.
        scale: c, a number or (H,); D^-0.5 by default.
        normalize: whether q and k are L2-normalised first.
        implementation: "reference", "folded", "blockwise", "flex", or "auto" to choose one; see `explain`.
        return_weights: also return the weights, after dropout.

    Returns:
        (B, H, N, D) in q's dtype; with `return_weights` also the weights, (B, H, N, M).

    Raises:
        ValueError: shapes, dtypes or heads do not fit, or the implementation asked for cannot compute the call.

    Example:
        >>> import relbias as rb
        >>> q, k, v = torch.randn(3, 2, 8, 10, 64).unbind()
        >>> encoding = rb.create_encoding("t5", num_heads=8, head_dim=64)
        >>> terms = encoding(rb.relations.Sequence()(10, 10))
        >>> rb.relative_attention(q, k, v, terms, is_causal=True).shape
        torch.Size([2, 8, 10, 64])
    """
    kind = q.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):  # there is no autocast without values
        low = torch.get_autocast_dtype(kind)
        q, k, v = (x if x.dtype == torch.float64 else x.to(low) for x in (q, k, v))
        exact: AbstractContextManager[Any] = torch.autocast(kind, enabled=False)
    else:
        exact = nullcontext()
    with exact:
        call = Call.of(
            q,
            k,
            v,
            terms,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            window=window,
            document_ids=document_ids,
            dropout_p=dropout_p,
            scale=scale,
            normalize=normalize,
            return_weights=return_weights,
        )
        notify(call)
        chosen, _ = _choose(call, implementation)
        out, weights = IMPLEMENTATIONS[chosen].attend(call)
    return (out, weights) if return_weights else out


def explain(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms | None = None, *, implementation: str = "auto", **arguments: Any
) -> Explanation:
    """How `relative_attention` would compute a call, and why not otherwise.

    Args:
        q: (B, H, N, D).
        k: (B, Hkv, M, D).
        v: (B, Hkv, M, D).
        terms: what the relations add.
        implementation: as in `relative_attention`.
        **arguments: the others of `relative_attention`.

    Returns:
        The chosen implementation and every other's reason.

    Raises:
        ValueError: as `relative_attention` would.

    Example:
        >>> import relbias as rb
        >>> q, k, v = torch.randn(3, 2, 8, 10, 64).unbind()
        >>> print(rb.explain(q, k, v, return_weights=True))
        reference
          not folded: scaled_dot_product_attention does not return weights
          not blockwise: the weights of all queries are never in memory together
          not flex: FlexAttention does not return weights
    """
    known = inspect.signature(relative_attention).parameters
    for name in arguments:
        if name not in known:
            raise TypeError(f"explain() got an unexpected argument {name!r}; {nearest(name, known)}")
    return _explain(Call.of(q, k, v, terms, **arguments), implementation)
