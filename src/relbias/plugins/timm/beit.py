"""timm's Beit: attention with its own bias, one that all layers share, or none."""

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
from relbias.plugins.timm.qkv import project_without_key_bias, split_qkv
from relbias.plugins.timm.tokens import EncodesTokens, first_block

with extra("vision"):
    from timm.models.beit import Attention, Beit, Block


class RelativeBeitAttention(Attention):
    """Beit's attention with an encoding of the relation between patches at `self.encoding`."""

    host_class = Attention
    encoding: Encoding

    def forward(self, x: Tensor, shared_rel_pos_bias: Tensor | None = None) -> Tensor:
        """As in Beit; x is (B, N, C), the class token first, then the patches row by row."""
        q, k, v = split_qkv(project_without_key_bias(self, x), self.num_heads)
        own = None if self.relative_position_bias_table is None else self._get_rel_pos_bias()
        index = index_of_call(self.encoding, x.shape[1], True)
        out = attend(
            self,
            q,
            k,
            v,
            x,
            index,
            bias=own,
            attn_mask=shared_rel_pos_bias,
            scale=self.scale,
            # The shared bias alone has three axes, for which torch has no fused kernel.
            unfused=own is None and shared_rel_pos_bias is not None,
        )
        return self.proj_drop(self.proj(out.transpose(1, 2).flatten(2)))


class AttachedBeit(BindsImageGrid, Beit):
    """A Beit that binds the grid of its image."""

    host_class = Beit


class EncodedBlock(EncodesTokens, Block):
    """A Block with an encoding of its tokens."""

    host_class = Block


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of the blocks."""
    return patch_sites(root, grid, RelativeBeitAttention)


def find_tokens(root: Any, grid: tuple[int, int]) -> Site:
    """The first block."""
    return first_block(root, find_sites(root, grid)[0], (EncodedBlock,))


HOSTS = [
    Host(
        root=Beit,
        modules=("beit",),
        sites=find_sites,
        classes=lambda root: {root: AttachedBeit},
        tokens=find_tokens,
        positions=("pos_embed",),
    )
]
