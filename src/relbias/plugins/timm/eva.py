"""timm's Eva: EVA, EVA-02, RoPE-ViT, the Perception Encoder and DINOv3."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.timm.attention_rope import RelativeAttentionRope, attend_and_project
from relbias.plugins.timm.block_sites import patch_sites
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.image_grid import BindsImageGrid
from relbias.plugins.timm.patch_dropout import telling
from relbias.plugins.timm.qkv import project_apart, project_without_key_bias, split_qkv
from relbias.plugins.timm.tokens import EncodesTokens, first_block

with extra("vision"):
    from timm.models.eva import Eva, EvaAttention, EvaBlock, EvaBlockPostNorm


class RelativeEvaAttention(EvaAttention):
    """Eva's attention with an encoding of the relation between patches at `self.encoding`."""

    host_class = EvaAttention
    encoding: Encoding

    def forward(
        self, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """As in Eva; x is (B, N, C), prefix tokens first, then the patches row by row."""
        if self.qkv is not None:
            q, k, v = split_qkv(project_without_key_bias(self, x), self.num_heads)
        else:
            q, k, v = project_apart(self, x)
        return attend_and_project(self, q, k, v, x, rope, attn_mask, is_causal)


class AttachedEva(BindsImageGrid, Eva):
    """An Eva that binds the grid of its image."""

    host_class = Eva


class EncodedEvaBlock(EncodesTokens, EvaBlock):
    """A EvaBlock with an encoding of its tokens."""

    host_class = EvaBlock


class EncodedEvaBlockPostNorm(EncodesTokens, EvaBlockPostNorm):
    """A EvaBlockPostNorm with an encoding of its tokens."""

    host_class = EvaBlockPostNorm


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of the blocks."""
    return patch_sites(root, grid, RelativeEvaAttention, RelativeAttentionRope)


def find_tokens(root: Any, grid: tuple[int, int]) -> Site:
    """The first block."""
    return first_block(root, find_sites(root, grid)[0], (EncodedEvaBlock, EncodedEvaBlockPostNorm))


HOSTS = [
    Host(
        root=Eva,
        modules=("eva",),
        sites=find_sites,
        classes=lambda root: {root: AttachedEva, **telling(root)},
        tokens=find_tokens,
        positions=("pos_embed",),
    )
]
