"""timm's SwinTransformerV2: cosine attention in windows, with a bias that a network makes of the offset."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.engine import Site
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.host import Host, is_exactly
from relbias.plugins.timm.qkv import project_without_key_bias, split_qkv
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.windows import block_attentions, mask_of_windows, window_sites

with extra("vision"):
    from timm.models.swin_transformer_v2 import SwinTransformerV2, SwinTransformerV2Stage, WindowAttention

_LARGEST_SCALE = 100.0


class RelativeWindowAttentionV2(WindowAttention):
    """Swin v2's WindowAttention with an encoding of the relation within a window at `self.encoding`."""

    host_class = WindowAttention
    fused_attn = False
    encoding: Encoding
    relative_position_index: Any

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """As in timm; x is (B W, N, C), the patches of W windows of each image, mask (W, N, N)."""
        batch, tokens, _ = x.shape
        q, k, v = split_qkv(project_without_key_bias(self, x), self.num_heads)
        out = attend(
            self,
            q,
            k,
            v,
            x,
            self.encoding.grid_index(*self.window_size),
            bias=self._bias(tokens),
            attn_mask=mask_of_windows(mask, batch),
            scale=self.logit_scale.clamp(max=math.log(_LARGEST_SCALE)).exp().flatten(),
            normalize=True,
        )
        return self.proj_drop(self.proj(out.transpose(1, 2).reshape(batch, tokens, -1)))

    def _bias(self, tokens: int) -> Tensor:
        """The model's own bias, (H, N, N)."""
        table = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        bias = table[self.relative_position_index.flatten()].view(tokens, tokens, -1).permute(2, 0, 1).contiguous()
        return 16 * bias.sigmoid()  # not of the table, which is rounded otherwise where it is not a whole vector


class AttachedSwinTransformerV2(AttachedModel, SwinTransformerV2):
    """A SwinTransformerV2 with encodings in its attention."""

    host_class = SwinTransformerV2


def attends(root: nn.Module) -> bool:
    """Whether there is a stage of this family inside."""
    return any(is_exactly(module, SwinTransformerV2Stage) for module in root.modules())


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of each block, where `grid` is the window of the first."""
    return window_sites(
        block_attentions(root, SwinTransformerV2Stage, WindowAttention), RelativeWindowAttentionV2, grid
    )


def own_grid(root: Any) -> tuple[int, int]:
    """The window of the first block."""
    return block_attentions(root, SwinTransformerV2Stage, WindowAttention)[0].window_size


HOSTS = [
    Host(
        root=SwinTransformerV2,
        modules=("swin_transformer_v2",),
        sites=find_sites,
        classes=lambda root: {root: AttachedSwinTransformerV2},
        grid=own_grid,
    )
]
