"""timm's VisionTransformerRelPos: attention with a bias module of its own, or one that all layers share."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.grids import index_of_call
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.block_sites import patch_sites
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.image_grid import BindsImageGrid
from relbias.plugins.timm.qkv import split_qkv
from relbias.plugins.timm.tokens import EncodesTokens, first_block

with extra("vision"):
    from timm.models.vision_transformer_relpos import (
        RelPosAttention,
        RelPosBlock,
        ResPostRelPosBlock,
        VisionTransformerRelPos,
    )


class RelativeRelPosAttention(RelPosAttention):
    """timm's RelPosAttention with an encoding of the relation between patches at `self.encoding`."""

    host_class = RelPosAttention
    encoding: Encoding
    rel_pos: Any

    def forward(self, x: Tensor, shared_rel_pos: Tensor | None = None) -> Tensor:
        """As in timm; x is (B, N, C), the class token first if there is one, then the patches row by row."""
        q, k, v = split_qkv(self.qkv(x), self.num_heads)
        q, k = self.q_norm(q), self.k_norm(k)
        bias = shared_rel_pos if self.rel_pos is None else self.rel_pos.get_bias()
        index = index_of_call(self.encoding, x.shape[1], True)
        out = attend(self, q, k, v, x, index, bias=bias, scale=self.scale)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


class AttachedVisionTransformerRelPos(BindsImageGrid, VisionTransformerRelPos):
    """A VisionTransformerRelPos that binds the grid of its image."""

    host_class = VisionTransformerRelPos


class EncodedRelPosBlock(EncodesTokens, RelPosBlock):
    """A RelPosBlock with an encoding of its tokens."""

    host_class = RelPosBlock


class EncodedResPostRelPosBlock(EncodesTokens, ResPostRelPosBlock):
    """A ResPostRelPosBlock with an encoding of its tokens."""

    host_class = ResPostRelPosBlock


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of the blocks."""
    return patch_sites(root, grid, RelativeRelPosAttention)


def find_tokens(root: Any, grid: tuple[int, int]) -> Site:
    """The first block."""
    return first_block(root, find_sites(root, grid)[0], (EncodedRelPosBlock, EncodedResPostRelPosBlock))


HOSTS = [
    Host(
        root=VisionTransformerRelPos,
        modules=("vision_transformer_relpos",),
        sites=find_sites,
        classes=lambda root: {root: AttachedVisionTransformerRelPos},
        tokens=find_tokens,
    )
]
