"""Other attention of timm's vision transformers: blocks that attend beside their MLP, and differential attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.grids import index_of_call
from relbias.plugins.timm.attend import attend

with extra("vision"):
    from timm.layers import DiffAttention
    from timm.models.vision_transformer import DiffParallelScalingBlock, ParallelScalingBlock


class _Parallel:
    """The forward of the blocks that project their input to q, k, v and the MLP's hidden layer at once."""

    encoding: Encoding

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """As in timm; x is (B, N, C), prefix tokens first, then the patches row by row."""
        block: Any = self
        normed = block.in_norm(x)
        hidden, q, k, v = block.in_proj(normed).split(block.in_split, dim=-1)
        if block.mlp_bias is not None:
            hidden = hidden + block.mlp_bias
        out = block.attended(normed, q, k, v, attn_mask=attn_mask, is_causal=is_causal)
        hidden = block.mlp_drop(block.mlp_act(hidden))
        if block.out_proj is not None:
            out = block.out_proj(torch.cat((out, hidden), dim=-1))
        else:
            out = block.attn_out_proj(out) + block.mlp_out_proj(hidden)
        return x + block.drop_path(block.ls(out))


class RelativeParallelScalingBlock(_Parallel, ParallelScalingBlock):
    """timm's ParallelScalingBlock with an encoding of the relation between patches at `self.encoding`."""

    host_class = ParallelScalingBlock

    def attended(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, **masks: Any) -> Tensor:
        """What attention gives, (B, N, C), for x and q, k, v of the same shape."""
        q, k, v = (part.unflatten(-1, (self.num_heads, self.head_dim)) for part in (q, k, v))
        q, k, v = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2), v.transpose(1, 2)
        index = index_of_call(self.encoding, x.shape[1], True)
        return attend(self, q, k, v, x, index, scale=self.scale, **masks).transpose(1, 2).flatten(2)


class RelativeDiffParallelScalingBlock(_Parallel, DiffParallelScalingBlock):
    """The same for timm's DiffParallelScalingBlock."""

    host_class = DiffParallelScalingBlock
    values_per_query = 2

    def attended(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, **masks: Any) -> Tensor:
        """What attention gives, (B, N, C), for x and q, k, v of the same shape."""
        return _difference(self, x, q, k, v, **masks)


class RelativeDiffAttention(DiffAttention):
    """timm's DiffAttention with an encoding of the relation between patches at `self.encoding`."""

    host_class = DiffAttention
    values_per_query = 2
    encoding: Encoding

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """As in timm; x is (B, N, C), prefix tokens first, then the patches row by row."""
        q, k, v = self.qkv(x).chunk(3, dim=2)
        out = _difference(self, x, q, k, v, attn_mask=attn_mask, is_causal=is_causal)
        return self.proj_drop(self.proj(self.norm(out)))


def _difference(module: Any, x: Tensor, q: Tensor, k: Tensor, v: Tensor, **masks: Any) -> Tensor:
    """The difference of two attentions, of the even and the odd heads of q and k, both with the terms of the encoding.

    Args:
        module: of a class above, with H heads of values of size 2 D.
        x: (B, N, C), the input of the layer.
        q: (B, N, C), of 2 H heads.
        k: (B, N, C), likewise.
        v: (B, N, C), of H heads.
        **masks: of the call.
    """
    q, k = (part.unflatten(-1, (2 * module.num_heads, module.head_dim)).transpose(1, 2) for part in (q, k))
    v = v.unflatten(-1, (module.num_heads, 2 * module.head_dim)).transpose(1, 2)
    q, k = module.q_norm(q), module.k_norm(k)
    index = index_of_call(module.encoding, x.shape[1], True)
    unfused = not module.fused_attn
    first, second = (
        attend(module, q[:, i::2], k[:, i::2], v, x, index, scale=module.scale, return_weights=unfused, **masks)
        for i in (0, 1)
    )
    factor = module._compute_lambda().type_as(q)
    if unfused:
        # Timm drops weights of both in one draw and takes the difference of what is left.
        both = torch.stack((first[1], second[1]), dim=2)
        even, odd = module.attn_drop(both.flatten(1, 2)).view_as(both).unbind(2)
        out = (even - factor * odd) @ v
    else:
        out = first - factor * second
    out = module.sub_norm(out) * (1 - module.lambda_init)
    return out.transpose(1, 2).flatten(2)
