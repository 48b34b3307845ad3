"""All terms of the logits folded into a mask for torch's scaled_dot_product_attention."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from relbias.attention.call import Call
from relbias.attention.implementation import Implementation, in_transform
from relbias.attention.lookup import added_rows, value_rows
from relbias.attention.masks import empty_rows, hide
from relbias.relations.base import ALL_ROWS
from relbias.relations.kept import plain_numbers

scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention

_asked = threading.local()


@contextmanager
def plain_kernel() -> Generator[None]:
    """Keep torch from its fused kernels for what has a mask and runs inside, in this thread.

    torch.nn.attention.sdpa_kernel does that to all threads, and where two of them overlap in it, some kernels stay
    disabled.
    """
    outer = _plain()
    _asked.plain = True
    try:
        yield
    finally:
        _asked.plain = outer


def _plain() -> bool:
    return getattr(_asked, "plain", False)


class Folded(Implementation):
    """Every term but V becomes part of one additive mask, (B or 1, H or 1, N, M), for torch's fused attention.

    The mask is the cost: N M numbers, per head where a term differs by head and per item where it differs by item.
    Where anything is added, half precision is computed in float32, so that no mask is rounded. What V adds to the
    output is made beside, from the weights of every head and item, and added to what torch returns: where V is 0 that
    stays as it is to the bit.
    """

    name = "folded"

    def refusal(self, call: Call) -> str | None:
        if call.dropout_p > 0.0 and "V" in call.terms.names:
            return "dropout within scaled_dot_product_attention does not tell which weights are left for the term V"
        if call.return_weights:
            return "scaled_dot_product_attention does not return weights"
        return None

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        dtype = call.q.dtype
        if call.q.device.type == "cpu" or _adds(call):
            # Half precision would round the mask, and torch's own backward pass on CPU rounds its sums.
            call = call.converted(call.dtype)
        call = call.with_normalized().with_all_heads()
        q, k = call.rotated()
        scale = call.scale
        if isinstance(scale, Tensor):
            q, scale = (q * call.factor()).to(q.dtype), 1.0
        if 0 in (call.masks.n, call.masks.m):
            nothing = q @ k.mT
            return _plus_values(nothing @ call.v, call, nothing).to(dtype), None
        mask = _mask(call)
        if mask is None:
            causal = call.masks.is_causal
            out = scaled_dot_product_attention(q, k, call.v, dropout_p=call.dropout_p, is_causal=causal, scale=scale)
            if "V" in call.terms.names:
                allowed = call.masks.allowed(ALL_ROWS, q.device)
                out = _plus_values(out, call, hide((q * scale) @ k.mT, allowed).softmax(-1))
            return out.to(dtype), None
        empty = None
        if call.may_hide and _may_hide(mask):
            # A query without keys: let it see all of them, then discard what it got.
            boolean = mask.dtype == torch.bool
            empty = ~mask.any(dim=-1, keepdim=True) if boolean else empty_rows(mask)
            mask = mask | empty if boolean else mask.masked_fill(empty, 0.0)
        tensors, unfused = [q, k, call.v, mask], _plain() or in_transform()
        if unfused:
            # torch has fused kernels for four axes alone. In vmap, which hides that the mask wants a gradient, they
            # would not give it.
            tensors = [tensor[None] for tensor in tensors]
        *qkv, mask = tensors
        backends = _backends(q.device.type, mask.requires_grad, any(tensor.requires_grad for tensor in qkv))
        with sdpa_kernel(backends) if backends else nullcontext():
            out = scaled_dot_product_attention(*qkv, attn_mask=mask, dropout_p=call.dropout_p, scale=scale)
        out = out[0] if unfused else out
        if "V" in call.terms.names:
            logits = (q * scale) @ k.mT
            mask = mask[0] if unfused else mask
            logits = hide(logits, mask) if mask.dtype == torch.bool else logits + mask
            out = _plus_values(out, call, logits.softmax(-1))
        return (out if empty is None else out.masked_fill(empty, 0.0)).to(dtype), None


def _plus_values(out: Tensor, call: Call, weights: Tensor) -> Tensor:
    """The output, (B, H, N, D), and what V adds to it for the weights, (B, H, N, M)."""
    for entry in call.terms.entries:
        if entry.V is not None:
            out = out + value_rows(entry.V, entry, weights, ALL_ROWS)
    return out


def _may_hide(mask: Tensor) -> bool:
    """Whether a mask can hide a key: on CPU it is looked at, which is cheaper than the copies without empty rows."""
    if mask.dtype == torch.bool or mask.device.type != "cpu" or not plain_numbers(mask.device):
        return True
    return mask.numel() > 0 and not bool(mask.detach().amin() > -math.inf)


def _backends(device: str, mask_is_trained: bool, others_are_trained: bool) -> list[SDPBackend]:
    """The kernels that give a mask its gradient on CUDA; empty where torch may choose.

    Args:
        device: its type.
        mask_is_trained: whether the mask needs a gradient.
        others_are_trained: whether q, k or v needs one. The memory-efficient kernel keeps what its backward pass reads
            for their sake alone.
    """
    if device != "cuda" or not mask_is_trained or not torch.is_grad_enabled():
        return []
    return [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH] if others_are_trained else [SDPBackend.MATH]


def _mask(call: Call) -> Tensor | None:
    """What is added to the logits, or which keys are allowed if nothing is: (B or 1, H or 1, N, M).

    None if torch's own causal flag, or nothing, says all.
    """
    parts = [part for part in (added_rows(call, ALL_ROWS), call.masks.added(ALL_ROWS, call.dtype)) if part is not None]
    if not parts and call.masks.only_causal:
        return None
    allowed = call.masks.allowed(ALL_ROWS, call.q.device)
    return hide(sum(parts[1:], parts[0]), allowed) if parts else allowed


def _adds(call: Call) -> bool:
    """Whether anything is added to the logits."""
    mask = call.masks.attn_mask
    return any(name != "rotation" for name in call.terms.names) or (mask is not None and mask.is_floating_point())
