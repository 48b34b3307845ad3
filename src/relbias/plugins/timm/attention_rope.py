"""timm's AttentionRope, which several families share: attention that turns q and k by the rope that it is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.grids import index_of_call
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.host_rotation import HostTurn
from relbias.plugins.timm.qkv import project_apart, split_qkv

with extra("vision"):
    from timm.layers import AttentionRope, apply_rot_embed_cat


class RelativeAttentionRope(AttentionRope):
    """timm's AttentionRope with an encoding of the relation between patches at `self.encoding`."""

    host_class = AttentionRope
    encoding: Encoding

    def forward(
        self, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """As in timm; x is (B, N, C), prefix tokens first, then the patches row by row."""
        if self.qkv is not None:
            q, k, v = split_qkv(self.qkv(x), self.num_heads)
        else:
            q, k, v = project_apart(self, x)
        return attend_and_project(self, q, k, v, x, rope, attn_mask, is_causal)


def attend_and_project(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    x: Tensor,
    rope: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """What follows the projections in AttentionRope, and in the attention of Eva.

    Args:
        module: of timm, with an encoding.
        q: (B, H, N, D).
        k: (B, H or fewer, N, D).
        v: (B, H or fewer, N, D).
        x: (B, N, C), the input of the module.
        rope: the sines and cosines of the patches, (..., N - P, 2 D), or None.
        attn_mask: of the call.
        is_causal: of the call.

    Returns:
        (B, N, C).
    """
    index = index_of_call(module.encoding, x.shape[1], True)
    q, k = module.q_norm(q), module.k_norm(k)
    turn = None if rope is None else rope_turn(rope, module.num_prefix_tokens, getattr(module, "rotate_half", False))
    out = attend(module, q, k, v, x, index, turn=turn, attn_mask=attn_mask, is_causal=is_causal, scale=module.scale)
    out = module.norm(out.transpose(1, 2).flatten(2))
    gate = getattr(module, "gate", None)  # absent in older timm
    if gate is not None:
        out = out * gate(x).sigmoid()
    return module.proj_drop(module.proj(out))


def rope_turn(rope: Tensor, prefix_tokens: int, half: bool) -> HostTurn:
    """How timm turns q and k: the patches only.

    Args:
        rope: the sines and cosines of the patches, (..., N - P, 2 D).
        prefix_tokens: P.
        half: whether pairs are (p, p + D / 2), or (2 p, 2 p + 1).
    """

    def apply(x: Tensor) -> Tensor:
        patches = apply_rot_embed_cat(x[:, :, prefix_tokens:], rope, half=half)
        return torch.cat((x[:, :, :prefix_tokens], patches), dim=2).to(x.dtype)

    return HostTurn(apply, interleaved=not half)
