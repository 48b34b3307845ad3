"""Which keys a query may attend to, as a block mask of torch's FlexAttention."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from relbias.attention.call import Call
from relbias.attention.masks import Window

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def block_mask(call: Call) -> BlockMask | None:
    """The masks of a call that hide keys, or None where none does.

    Blocks of 128 x 128 pairs that are hidden are not computed. What depends on the lengths alone is kept for later.
    """
    masks, device = call.masks, call.q.device
    n, m, given = masks.n, masks.m, masks.attn_mask
    parts: list[MaskMod] = []
    batch = heads = None
    if given is not None and given.dtype == torch.bool:
        given = given.view(*[1] * (4 - given.ndim), *given.shape).expand(-1, -1, n, m)
        batch, heads = (size if size > 1 else None for size in given.shape[:2])
        parts.append(_given(given))
    if masks.key_padding_mask is not None:
        batch = call.q.shape[0]
        parts.append(_padding(masks.key_padding_mask))
    if masks.document_ids is not None:
        batch = call.q.shape[0]
        parts.append(_documents(masks.document_ids, _number(m - n, device)))
    if not parts:
        if not masks.is_causal and masks.window is None:
            return None
        make = _of_offsets.__wrapped__ if torch.compiler.is_compiling() else _of_offsets
        return make(masks.is_causal, masks.window, n, m, device)
    offsets = _offsets(masks.is_causal, masks.window, n, m, device)
    parts += [] if offsets is None else [offsets]
    return create_block_mask(_all(parts), batch, heads, n, m, device=str(device))


@functools.lru_cache(maxsize=32)
def _of_offsets(is_causal: bool, window: Window | None, n: int, m: int, device: torch.device) -> BlockMask:
    with torch.inference_mode(False):  # what inference mode makes could not be used in training
        mask_mod = _offsets(is_causal, window, n, m, device)
        if mask_mod is None:
            raise TypeError("there is nothing to hide")
        return create_block_mask(mask_mod, None, None, n, m, device=str(device))


def _number(value: int, device: torch.device) -> Tensor:
    """An integer as a tensor, so that another one compiles nothing anew."""
    return torch.full((), value, dtype=torch.int32, device=device)


def _offsets(is_causal: bool, window: Window | None, n: int, m: int, device: torch.device) -> MaskMod | None:
    """The causal mask and the window, as limits of the offset."""
    if not is_causal and window is None:
        return None
    left, right = (m, m) if window is None else window
    lowest, highest = _number(-min(left, m), device), _number(0 if is_causal else min(right, m), device)
    first = _number(m - n, device)

    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        offset = key - query - first
        return (offset >= lowest) & (offset <= highest)

    return allowed


def _given(mask: Tensor) -> MaskMod:
    batches, heads = (size > 1 for size in mask.shape[:2])

    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask[batch if batches else 0, head if heads else 0, query, key]

    return allowed


def _padding(padding: Tensor) -> MaskMod:
    return lambda batch, head, query, key: ~padding[batch, key]


def _documents(ids: Tensor, first: Tensor) -> MaskMod:
    return lambda batch, head, query, key: ids[batch, query + first] == ids[batch, key]


def _all(parts: list[MaskMod]) -> MaskMod:
    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        result = parts[0](batch, head, query, key)
        for part in parts[1:]:
            result = result & part(batch, head, query, key)
        return result

    return allowed
