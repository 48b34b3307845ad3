"""timm's SwinTransformerV2Cr: cosine attention in windows, with a bias that a network makes of the offset."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.host import Host, is_exactly
from relbias.plugins.timm.qkv import split_qkv
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.windows import block_attentions, mask_of_windows, window_sites

with extra("vision"):
    from timm.models.swin_transformer_v2_cr import (
        SwinTransformerV2Cr,
        SwinTransformerV2CrStage,
        WindowMultiHeadAttention,
    )

_LARGEST_SCALE = 100.0


class RelativeWindowMultiHeadAttention(WindowMultiHeadAttention):
    """WindowMultiHeadAttention with an encoding of the relation within a window at `self.encoding`."""

    host_class = WindowMultiHeadAttention
    fused_attn = False
    encoding: Encoding

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """As in timm; x is (B W, N, C), the patches of W windows of each image, mask (W, N, N)."""
        batch, tokens, _ = x.shape
        q, k, v = split_qkv(self.qkv(x), self.num_heads)
        out = attend(
            self,
            q,
            k,
            v,
            x,
            self.encoding.grid_index(*self.window_size),
            bias=self._relative_positional_encodings(),
            attn_mask=mask_of_windows(mask, batch),
            scale=self.logit_scale.clamp(max=math.log(_LARGEST_SCALE)).exp(),
            normalize=True,
        )
        return self.proj_drop(self.proj(out.transpose(1, 2).reshape(batch, tokens, -1)))


class AttachedSwinTransformerV2Cr(AttachedModel, SwinTransformerV2Cr):
    """A SwinTransformerV2Cr with encodings in its attention."""

    host_class = SwinTransformerV2Cr


def attends(root: nn.Module) -> bool:
    """Whether there is a stage of this family inside."""
    return any(is_exactly(module, SwinTransformerV2CrStage) for module in root.modules())


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of each block, where `grid` is the window of the first."""
    return window_sites(
        block_attentions(root, SwinTransformerV2CrStage, WindowMultiHeadAttention),
        RelativeWindowMultiHeadAttention,
        grid,
    )


def own_grid(root: Any) -> tuple[int, int]:
    """The window of the first block."""
    return block_attentions(root, SwinTransformerV2CrStage, WindowMultiHeadAttention)[0].window_size


HOSTS = [
    Host(
        root=SwinTransformerV2Cr,
        modules=("swin_transformer_v2_cr",),
        sites=find_sites,
        classes=lambda root: {root: AttachedSwinTransformerV2Cr},
        grid=own_grid,
    )
]
