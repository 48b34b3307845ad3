"""timm's VisionTransformerSAM: attention in windows, in some blocks over the whole map."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.attention_rope import rope_turn
from relbias.plugins.timm.block_sites import block_sites, check_patches
from relbias.plugins.timm.host import Host, UnsupportedError
from relbias.plugins.timm.positions import without_positions
from relbias.plugins.timm.qkv import split_qkv
from relbias.plugins.timm.root import AttachedModel
from relbias.relations import Grid

with extra("vision"):
    from timm.models.vision_transformer_sam import Attention, VisionTransformerSAM, get_decomposed_rel_pos_bias


class RelativeSamAttention(Attention):
    """SAM's attention with an encoding of the relation between patches at `self.encoding`.

    Its input says what the grid is, a window or the whole map, so nothing has to be bound.
    """

    host_class = Attention
    encoding: Encoding
    rope: Any

    def forward(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, height, width, C), in patches."""
        grid = height, width = x.shape[1], x.shape[2]
        tokens = x.flatten(1, 2)
        # In memory as in timm, where heads and batch are one axis.
        q, k, v = (part.contiguous() for part in split_qkv(self.qkv(tokens), self.num_heads))
        q, k = self.q_norm(q), self.k_norm(k)
        bias = turn = None
        if self.use_rel_pos:
            flat = get_decomposed_rel_pos_bias(q.flatten(0, 1), self.rel_pos_h, self.rel_pos_w, grid, grid)
            bias = flat.unflatten(0, (-1, self.num_heads))
        elif self.rope is not None:
            turn = rope_turn(self.rope.get_embed(), prefix_tokens=0, half=False)
        index = self.encoding.grid_index(height, width)
        out = attend(self, q, k, v, tokens, index, turn=turn, bias=bias, scale=self.scale)
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2))).unflatten(1, grid)


class AttachedVisionTransformerSAM(AttachedModel, VisionTransformerSAM):
    """A VisionTransformerSAM that leaves out dropped positions."""

    host_class = VisionTransformerSAM

    def forward_features(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, C, height, width), in pixels."""
        return super(AttachedVisionTransformerSAM, without_positions(self)).forward_features(x)

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        return super(AttachedVisionTransformerSAM, without_positions(self)).forward_intermediates(x, *args, **kwargs)


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of the blocks, each over its window or over the whole map."""
    check_patches(root)
    if not isinstance(root.patch_drop, nn.Identity):
        raise UnsupportedError("it drops patches in training; create it with patch_drop_rate=0")
    sites = []
    for block in root.blocks:
        own = (block.window_size, block.window_size) if block.window_size else grid
        sites += block_sites([block], Grid(*own), RelativeSamAttention)
    return sites


HOSTS = [
    Host(
        root=VisionTransformerSAM,
        modules=("vision_transformer_sam",),
        sites=find_sites,
        classes=lambda root: {root: AttachedVisionTransformerSAM},
        positions=("pos_embed",),
    )
]
