"""timm's SwinTransformer: attention in windows, every second time in shifted ones."""

from __future__ import annotations

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
    from timm.models.swin_transformer import SwinTransformer, SwinTransformerStage, WindowAttention


class RelativeWindowAttention(WindowAttention):
    """Swin's WindowAttention with an encoding of the relation within a window at `self.encoding`."""

    host_class = WindowAttention
    encoding: Encoding

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """As in timm; x is (B W, N, C), the patches of W windows of each image, mask (W, N, N)."""
        batch, tokens, _ = x.shape
        q, k, v = split_qkv(self.qkv(x), self.num_heads)
        index = self.encoding.grid_index(*self.window_size)
        out = attend(
            self,
            q,
            k,
            v,
            x,
            index,
            bias=self._get_rel_pos_bias(),
            attn_mask=mask_of_windows(mask, batch),
            scale=self.scale,
        )
        return self.proj_drop(self.proj(out.transpose(1, 2).reshape(batch, tokens, -1)))


class AttachedSwinTransformer(AttachedModel, SwinTransformer):
    """A SwinTransformer with encodings in its attention."""

    host_class = SwinTransformer


def attends(root: nn.Module) -> bool:
    """Whether there is a stage of this family inside."""
    return any(is_exactly(module, SwinTransformerStage) for module in root.modules())


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of each block, where `grid` is the window of the first."""
    return window_sites(block_attentions(root, SwinTransformerStage, WindowAttention), RelativeWindowAttention, grid)


def own_grid(root: Any) -> tuple[int, int]:
    """The window of the first block."""
    return block_attentions(root, SwinTransformerStage, WindowAttention)[0].window_size


HOSTS = [
    Host(
        root=SwinTransformer,
        modules=("swin_transformer",),
        sites=find_sites,
        classes=lambda root: {root: AttachedSwinTransformer},
        grid=own_grid,
    )
]
