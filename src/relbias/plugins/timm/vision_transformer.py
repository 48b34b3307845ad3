"""timm's VisionTransformer, and the distilled one of DeiT: where their attention is, and how it learns the grid."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.grids import index_of_call
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.block_sites import block_sites
from relbias.plugins.timm.host import Host, UnsupportedError
from relbias.plugins.timm.image_grid import AttachedHybridEmbed, BindsImageGrid
from relbias.plugins.timm.patch_dropout import telling
from relbias.plugins.timm.qkv import split_qkv
from relbias.plugins.timm.tokens import EncodesTokens, first_block
from relbias.plugins.timm.vision_transformer_blocks import (
    RelativeDiffAttention,
    RelativeDiffParallelScalingBlock,
    RelativeParallelScalingBlock,
)
from relbias.relations import Grid

with extra("vision"):
    from timm.layers import Attention, HybridEmbed, PatchEmbed
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import Block, ParallelThingsBlock, ResPostBlock, VisionTransformer


class RelativeAttention(Attention):
    """timm's Attention with an encoding of the relation between patches at `self.encoding`."""

    host_class = Attention
    grid_from_call = True
    encoding: Encoding

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """As in timm's Attention; x is (B, N, C), prefix tokens first, then the patches row by row."""
        batch, tokens, _ = x.shape
        q, k, v = split_qkv(self.qkv(x), self.num_heads)
        index = index_of_call(self.encoding, tokens, self.grid_from_call)
        q, k = self.q_norm(q), self.k_norm(k)
        out = attend(self, q, k, v, x, index, attn_mask=attn_mask, is_causal=is_causal, scale=self.scale)
        out = self.norm(out.transpose(1, 2).reshape(batch, tokens, -1))
        gate = getattr(self, "gate", None)  # absent in older timm
        if gate is not None:
            out = out * gate(x).sigmoid()
        return self.proj_drop(self.proj(out))


class FixedGridAttention(RelativeAttention):
    """The same in a model that does not tell the grid of a call: it is always the encoding's own."""

    grid_from_call = False


ATTENTIONS: tuple[Any, ...] = (
    RelativeAttention,
    RelativeParallelScalingBlock,
    RelativeDiffAttention,
    RelativeDiffParallelScalingBlock,
)
"""The attention of timm's vision transformers, which other families have too."""


class AttachedVisionTransformer(BindsImageGrid, VisionTransformer):
    """A VisionTransformer that binds the grid of its image."""

    host_class = VisionTransformer


class AttachedVisionTransformerDistilled(BindsImageGrid, VisionTransformerDistilled):
    """The same for DeiT's model with a distillation token."""

    host_class = VisionTransformerDistilled


class EncodedBlock(EncodesTokens, Block):
    """A Block with an encoding of its tokens."""

    host_class = Block


class EncodedResPostBlock(EncodesTokens, ResPostBlock):
    """A ResPostBlock with an encoding of its tokens."""

    host_class = ResPostBlock


class EncodedParallelThingsBlock(EncodesTokens, ParallelThingsBlock):
    """A ParallelThingsBlock with an encoding of its tokens."""

    host_class = ParallelThingsBlock


_ENCODED = (EncodedBlock, EncodedResPostBlock, EncodedParallelThingsBlock)


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention modules of the blocks of a model whose embedding tells the grid."""
    if not isinstance(root.patch_embed, (PatchEmbed, HybridEmbed)):
        embedding = type(root.patch_embed).__name__
        raise UnsupportedError(f"its patch embedding is a {embedding}, neither a PatchEmbed nor a HybridEmbed")
    return vit_sites(root, grid)


def vit_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention modules of the blocks, whatever the embedding.

    Args:
        root: with `blocks` and `num_prefix_tokens`.
        grid: (height, width), in patches.
    """
    if any(isinstance(module, FixedGridAttention) for module in root.blocks.modules()):
        raise ValueError("the model was created with relative attention (attn_layer=); there is nothing to attach")
    return block_sites(root.blocks, Grid(*grid, prefix_tokens=root.num_prefix_tokens), *ATTENTIONS)


def find_tokens(root: Any, grid: tuple[int, int]) -> Site:
    """The first block."""
    return first_block(root, find_sites(root, grid)[0], _ENCODED)


def _classes(root: Any) -> dict[nn.Module, type[nn.Module]]:
    """The model itself, and the layers that have to say which patches there are."""
    classes: dict[nn.Module, type[nn.Module]] = {root: AttachedVisionTransformer, **telling(root)}
    if type(root.patch_embed) is HybridEmbed:
        classes[root.patch_embed] = AttachedHybridEmbed
    return classes


HOSTS = [
    Host(
        root=VisionTransformer,
        modules=("vision_transformer", "vision_transformer_hybrid", "vitamin", "deit"),
        sites=find_sites,
        classes=_classes,
        tokens=find_tokens,
        positions=("pos_embed",),
    ),
    Host(
        root=VisionTransformerDistilled,
        modules=("deit",),
        sites=find_sites,
        classes=lambda root: {root: AttachedVisionTransformerDistilled, **telling(root)},
        tokens=find_tokens,
        positions=("pos_embed",),
    ),
]
