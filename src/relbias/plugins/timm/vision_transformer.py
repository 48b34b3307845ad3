"""timm's VisionTransformer, and the distilled one of DeiT: where their attention is, and how it learns the grid."""

from __future__ import annotations

import difflib
import fnmatch
from typing import Any

import torch
from torch import Tensor, nn

from relbias._extras import extra
from relbias.attention import relative_attention
from relbias.encodings import Encoding
from relbias.plugins.binding import bind, bind_children
from relbias.plugins.engine import Site
from relbias.plugins.grids import index_of_call

with extra("vision"):
    import timm
    from timm.layers import Attention, PatchDropout, PatchEmbed
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import VisionTransformer

# Architectures of timm's two files whose blocks have no attention module of the supported class.
_NOT_SUPPORTED = ("vit_*_xp_*", "vit_pwee_*", "vit_dwee_*", "vit_dpwee_*", "vit_dlittle_*")


class RelativeAttention(Attention):
    """timm's Attention with an encoding of the relation between patches at `self.encoding`."""

    host_class = Attention
    grid_from_call = True
    encoding: Encoding

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """As in timm's Attention; x is (B, N, C), prefix tokens first, then the patches row by row."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        index = index_of_call(self.encoding, tokens, self.grid_from_call)
        terms = self.encoding(index, x=x, attention=self)
        if not self.fused_attn:
            # Without its fused attention timm computes what the reference does, and numbers must not change.
            implementation = "reference"
        else:
            # Only torch's fused attention gives the host's very numbers; with gradients the nearest will do.
            implementation = "auto" if torch.is_grad_enabled() or "V" in terms.names else "folded"
        out = relative_attention(
            self.q_norm(q),
            self.k_norm(k),
            v,
            terms,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=self.attn_drop.p if self.training else 0.0,
            scale=self.scale,
            implementation=implementation,
        )
        out = self.norm(out.transpose(1, 2).reshape(batch, tokens, -1))
        gate = getattr(self, "gate", None)  # absent in older timm
        if gate is not None:
            out = out * gate(x).sigmoid()
        return self.proj_drop(self.proj(out))


class FixedGridAttention(RelativeAttention):
    """The same in a model that does not tell the grid of a call: it is always the encoding's own."""

    grid_from_call = False


class AttachedVisionTransformer(VisionTransformer):
    """A VisionTransformer that binds the grid of its image in the two methods that every way into it leads through."""

    host_class: type[VisionTransformer] = VisionTransformer

    def forward_features(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        grid = self.patch_embed.dynamic_feat_size(x.shape[-2:])
        model = bind_children(self, "blocks", grid) if self.grad_checkpointing else self
        with bind(grid):
            return super(AttachedVisionTransformer, model).forward_features(x, *args, **kwargs)

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        grid = self.patch_embed.dynamic_feat_size(x.shape[-2:])
        model = bind_children(self, "blocks", grid) if self.grad_checkpointing else self
        with bind(grid):
            return super(AttachedVisionTransformer, model).forward_intermediates(x, *args, **kwargs)


class AttachedVisionTransformerDistilled(AttachedVisionTransformer, VisionTransformerDistilled):
    """The same for DeiT's model with a distillation token."""

    host_class = VisionTransformerDistilled


ROOT_CLASSES = {cls.host_class: cls for cls in (AttachedVisionTransformer, AttachedVisionTransformerDistilled)}
"""For each class of models the one that takes its place."""


def architectures() -> list[str]:
    """The names of the architectures that are supported, sorted."""
    names = [name for module in ("deit", "vision_transformer") for name in timm.list_models(module=module)]
    return sorted(name for name in names if not any(fnmatch.fnmatch(name, refused) for refused in _NOT_SUPPORTED))


def find(model: nn.Module) -> VisionTransformer:
    """The vision transformer that is the model or is inside it."""
    if isinstance(model, VisionTransformer):
        return model
    inside = [module for module in model.modules() if isinstance(module, VisionTransformer)]
    if len(inside) == 1:
        return inside[0]
    if inside:
        raise ValueError(f"{type(model).__name__} has {len(inside)} vision transformers inside; pass one of them")
    raise _refusal(model, "it is not a VisionTransformer of timm")


def find_sites(root: VisionTransformer) -> list[Site]:
    """The attention modules of the blocks, or the reason why the model is not supported."""
    if type(root) not in ROOT_CLASSES:
        raise _refusal(root, f"its class {type(root).__name__} is not timm's own")
    if not isinstance(root.patch_embed, PatchEmbed):
        raise _refusal(root, f"its patch embedding is a {type(root.patch_embed).__name__}, not a PatchEmbed")
    if isinstance(root.patch_drop, PatchDropout):
        raise _refusal(root, "it drops patches in training; create it with patch_drop_rate=0")
    sites = []
    for block in root.blocks:
        inside = list(block.modules())
        if any(isinstance(module, RelativeAttention) for module in inside):
            raise ValueError("the model was created with relative attention (attn_layer=); there is nothing to attach")
        found = [module for module in inside if type(module) is Attention]
        if not found:
            attention = type(getattr(block, "attn", block)).__name__
            raise _refusal(root, f"its blocks attend by {attention}, not by timm's Attention")
        sites += [
            Site(module, RelativeAttention, module.num_heads, module.head_dim, module.qkv.weight) for module in found
        ]
    return sites


def _refusal(model: nn.Module, reason: str) -> ValueError:
    name = getattr(model, "pretrained_cfg", {}).get("architecture") or type(model).__name__
    near = difflib.get_close_matches(name.lower(), architectures(), n=1, cutoff=0.0)[0]
    return ValueError(f"{name} is not supported: {reason}; the nearest supported model is {near!r}")
