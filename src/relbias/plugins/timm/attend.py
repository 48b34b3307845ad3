"""The attention that all of timm's modules share once they have an encoding."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from relbias.attention import relative_attention
from relbias.attention.folded import plain_kernel
from relbias.plugins.grids import refuse_tracing
from relbias.plugins.timm.host_rotation import HostTurn, with_host_turn
from relbias.terms import Terms


def attend(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    x: Tensor,
    index: Any,
    *,
    turn: HostTurn | None = None,
    bias: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | Tensor | None = None,
    normalize: bool = False,
    unfused: bool = False,
    return_weights: bool = False,
) -> Any:
    """Attention with the terms of a module's encoding, computed as the host would, so that numbers do not change.

    Args:
        module: of timm, with `encoding`, `fused_attn`, `attn_drop` and `training`.
        q: (B, H, N, D), normalised as the host does, not turned.
        k: (B, H or fewer, N, D), likewise.
        v: (B, H or fewer, N, D).
        x: (B, N, C), the input of the layer.
        index: of this call.
        turn: how the host turns q and k, if it does.
        bias: the host's own bias, broadcasting to (B, H, N, N). It is added to the logits before the mask.
        attn_mask: the host's own mask.
        is_causal: as in `relative_attention`.
        scale: as in `relative_attention`.
        normalize: as in `relative_attention`.
        unfused: whether the host gives torch's attention shapes with which it takes its plain kernel.
        return_weights: as in `relative_attention`, without dropout, which is left to the caller; only without fused
            attention.

    Returns:
        (B, H, N, D); with `return_weights` also the weights, (B, H, N, N).

    Raises:
        ValueError: torch.jit.trace or torch.fx is tracing.
    """
    refuse_tracing(q)
    terms = module.encoding(index, x=x, attention=module)
    if turn is not None:
        terms = with_host_turn(terms, turn, tokens=q.shape[2], head_dim=q.shape[3])
    if bias is not None:
        terms = terms + Terms(b=bias)
    # Without fused attention timm's dropout is a layer, with a mode of its own.
    drops = module.training if module.fused_attn else module.attn_drop.training
    dropout_p = module.attn_drop.p if drops and not return_weights else 0.0
    if not module.fused_attn:
        # Without its fused attention timm computes what the reference does, and numbers must not change.
        implementation = "reference"
    else:
        # Only torch's fused attention gives the host's very numbers; with gradients the nearest will do, and with
        # dropout there are none.
        implementation = "auto" if torch.is_grad_enabled() or dropout_p else "folded"
    # Hooks on a host's dropout, by which timm extracts attention, see the weights where the host would show them.
    hooks = (module.attn_drop._forward_hooks, module.attn_drop._forward_pre_hooks)
    watched = not module.fused_attn and not dropout_p and not return_weights and any(hooks)
    with plain_kernel() if unfused and not torch.is_grad_enabled() else nullcontext():
        out = relative_attention(
            q,
            k,
            v,
            terms,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=dropout_p,
            scale=scale,
            normalize=normalize,
            implementation=implementation,
            return_weights=return_weights or watched,
        )
    if not watched:
        return out
    out, weights = out
    module.attn_drop(weights)
    return out
