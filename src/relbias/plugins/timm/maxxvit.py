"""timm's MaxxVit (MaxViT, CoAtNet): attention in blocks and in dilated grids, or over the whole map of a stage."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.host import Host, UnsupportedError, is_exactly
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.windows import scaled
from relbias.relations import Grid

with extra("vision"):
    from timm.models.maxxvit import (
        Attention2d,
        AttentionCl,
        MaxxVit,
        ParallelPartitionAttention,
        PartitionAttention2d,
        PartitionAttentionCl,
        TransformerBlock2d,
    )


class RelativeAttentionCl(AttentionCl):
    """AttentionCl with an encoding of the relation within a block or a grid at `self.encoding`.

    Along an axis the tokens of a dilated grid are further apart in the image by one factor, so that their offsets are
    counted in steps of the grid.
    """

    host_class = AttentionCl
    encoding: Encoding

    def forward(self, x: Tensor, shared_rel_pos: Tensor | None = None) -> Tensor:
        """As in timm; x is (B, height, width, C), one block or grid."""
        batch, height, width, channels = x.shape
        tokens, heads, size = height * width, self.num_heads, self.dim_head
        if self.head_first:
            qkv = self.qkv(x).view(batch, tokens, heads, 3 * size).transpose(1, 2)
            q, k, v = qkv.chunk(3, dim=3)
        else:
            q, k, v = self.qkv(x).reshape(batch, tokens, 3, heads, size).transpose(1, 3).unbind(2)
        index = self.encoding.grid_index(height, width)
        bias = _own_bias(self, shared_rel_pos)
        out = attend(
            self,
            q,
            k,
            v,
            x.reshape(batch, tokens, channels),
            index,
            bias=bias,
            scale=self.scale,
            unfused=_unfused(bias),
        )
        return self.proj_drop(self.proj(out.transpose(1, 2).reshape(batch, height, width, -1)))


class RelativeAttention2d(Attention2d):
    """Attention2d with an encoding of the relation within its map at `self.encoding`."""

    host_class = Attention2d
    encoding: Encoding

    def forward(self, x: Tensor, shared_rel_pos: Tensor | None = None) -> Tensor:
        """As in timm; x is (B, C, height, width), the map of a stage, a block or a grid."""
        batch, _, height, width = x.shape
        heads, size = self.num_heads, self.dim_head
        if self.head_first:
            qkv = self.qkv(x).view(batch, heads, 3 * size, -1).chunk(3, dim=2)
        else:
            qkv = self.qkv(x).reshape(batch, 3, heads, size, -1).unbind(1)
        q, k, v = (part.mT.contiguous() if self.fused_attn else part.mT for part in qkv)
        index = self.encoding.grid_index(height, width)
        bias = _own_bias(self, shared_rel_pos)
        tokens = x.flatten(2).mT
        out = attend(self, q, k, v, tokens, index, bias=bias, scale=self.scale, unfused=_unfused(bias))
        return self.proj_drop(self.proj(out.mT.reshape(batch, -1, height, width)))


class AttachedMaxxVit(AttachedModel, MaxxVit):
    """A MaxxVit with encodings in its attention."""

    host_class = MaxxVit


def attends(root: nn.Module) -> bool:
    """Whether there is attention of this family inside."""
    return any(is_exactly(module, AttentionCl, Attention2d) for module in root.modules())


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of each block, where `grid` is that of the first: of a partition, or of a stage's map."""
    found = _attentions(root)
    first = found[0][1]
    return [
        Site(
            module,
            RelativeAttentionCl if is_exactly(module, AttentionCl) else RelativeAttention2d,
            module.num_heads,
            module.dim_head,
            module.qkv.weight,
            Grid(*scaled(own, first, grid)),
        )
        for module, own in found
    ]


def own_grid(root: Any) -> tuple[int, int]:
    """The grid of the first attention."""
    return _attentions(root)[0][1]


def _own_bias(module: Any, shared: Tensor | None) -> Tensor | None:
    return shared if module.rel_pos is None else module.rel_pos.get_bias()


def _unfused(bias: Tensor | None) -> bool:
    """Whether torch has no fused kernel for a bias: for one of three axes, such as a RelPosBiasTf makes."""
    return bias is not None and bias.ndim == 3


def _map_of(root: Any, block: Any) -> tuple[int, int]:
    """The size of the map that a block attends in: that of its own bias, or of the model's images."""
    if block.attn.rel_pos is not None:
        return block.attn.rel_pos.window_size
    if not is_exactly(root, MaxxVit):
        raise UnsupportedError("the sizes of its maps are not known; attach before the model is taken apart")
    height, width = (size // root.stem.stride for size in root.img_size)
    for stage in root.stages:
        height, width = (height + 1) // 2, (width + 1) // 2
        if block in set(stage.blocks):
            break
    return height, width


def _attentions(root: Any) -> list[tuple[Any, tuple[int, int]]]:
    """The modules with the grids that they attend in."""
    found = []
    for module in root.modules():
        if is_exactly(module, TransformerBlock2d):
            found.append((module.attn, _map_of(root, module)))
        elif is_exactly(module, PartitionAttentionCl, PartitionAttention2d):
            found.append((module.attn, module.partition_size))
        elif is_exactly(module, ParallelPartitionAttention):
            found += [(attention, module.partition_size) for attention in (module.attn_block, module.attn_grid)]
    if not found:
        raise UnsupportedError("none of its blocks attends")
    for attention, _ in found:
        if not is_exactly(attention, AttentionCl, Attention2d):
            raise UnsupportedError(f"its blocks attend by {type(attention).__name__}, not by timm's own")
    return found


HOSTS = [
    Host(
        root=MaxxVit,
        modules=("maxxvit",),
        sites=find_sites,
        classes=lambda root: {root: AttachedMaxxVit},
        grid=own_grid,
    )
]
