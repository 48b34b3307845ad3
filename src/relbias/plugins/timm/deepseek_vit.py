"""timm's vision encoder of DeepSeek-V4, alone or in a classifier."""

from __future__ import annotations

from typing import Any

from relbias._extras import extra
from relbias.plugins.engine import Site
from relbias.plugins.timm.attention_rope import RelativeAttentionRope
from relbias.plugins.timm.block_sites import patch_sites
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.image_grid import BindsImageGrid

with extra("vision"):
    from timm.models.deepseek_vit import DeepseekVitEncoder


class AttachedDeepseekVitEncoder(BindsImageGrid, DeepseekVitEncoder):
    """A DeepseekVitEncoder that binds the grid of its image."""

    host_class = DeepseekVitEncoder


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of the blocks, which turns q and k by a rope for any grid and attends in both directions."""
    return patch_sites(root, grid, RelativeAttentionRope)


HOSTS = [
    Host(
        root=DeepseekVitEncoder,
        modules=("deepseek_vit",),
        sites=find_sites,
        classes=lambda root: {root: AttachedDeepseekVitEncoder},
    )
]
