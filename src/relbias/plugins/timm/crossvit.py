"""timm's CrossViT: two branches that see the image at different scales, cut into patches of different sizes.

The attention within a branch gets an encoding. Between the branches a class token attends to the other branch's
patches, which no grid relates; that attention stays as it is.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.plugins.binding import bind, bind_each, bound
from relbias.plugins.engine import Site
from relbias.plugins.timm.block_sites import attention_sites
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.positions import without_positions
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.vision_transformer import ATTENTIONS
from relbias.relations import Grid

with extra("vision"):
    from timm.models.crossvit import CrossVit, MultiScaleBlock


class AttachedCrossVit(AttachedModel, CrossVit):
    """A CrossViT that binds the grids of its branches; they are always the same, since it scales every image."""

    host_class = CrossVit

    def forward_features(self, x: Tensor) -> list[Tensor]:
        """As in timm; x is (B, C, height, width), in pixels."""
        with bind(_grids(self)):
            return super(AttachedCrossVit, without_positions(self)).forward_features(x)

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        with bind(_grids(self)):
            return super(AttachedCrossVit, without_positions(self)).forward_intermediates(x, *args, **kwargs)


class AttachedMultiScaleBlock(MultiScaleBlock):
    """A block that binds for each branch its own of the grids that are bound."""

    host_class = MultiScaleBlock

    def forward(self, x: list[Tensor]) -> list[Tensor]:
        """As in timm; x are the tokens of the branches, (B, N, C) each."""
        grids = bound()
        block: Any = self if grids is None else bind_each(self, "blocks", grids)
        return super(AttachedMultiScaleBlock, block).forward(x)


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention modules within the branches; `grid` is that of the first."""
    own = _grids(root)
    sites = []
    for block in root.blocks:
        for branch, (height, width) in zip(block.blocks, own, strict=True):
            scaled = (max(1, round(grid[0] * height / own[0][0])), max(1, round(grid[1] * width / own[0][1])))
            sites += attention_sites(branch, Grid(*scaled, prefix_tokens=1), *ATTENTIONS)
    return sites


def _grids(root: Any) -> list[tuple[int, int]]:
    """The patches of each branch, (height, width)."""
    return [
        (embed.img_size[0] // embed.patch_size[0], embed.img_size[1] // embed.patch_size[1])
        for embed in root.patch_embed
    ]


def _classes(root: Any) -> dict[nn.Module, type[nn.Module]]:
    return {root: AttachedCrossVit, **dict.fromkeys(root.blocks, AttachedMultiScaleBlock)}


HOSTS = [
    Host(
        root=CrossVit,
        modules=("crossvit",),
        sites=find_sites,
        classes=_classes,
        positions=("pos_embed_0", "pos_embed_1"),
        grid=lambda root: _grids(root)[0],
    )
]
