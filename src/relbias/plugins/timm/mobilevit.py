"""timm's MobileViT: patches of a feature map whose pixels at one place within the patch attend to each other.

So the tokens of an attention are one pixel of each patch, in the order of the patches, and its grid is that of the
patches. Version 2 attends by scores that depend on the key alone.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from relbias._extras import extra
from relbias.plugins.binding import bind
from relbias.plugins.engine import Site
from relbias.plugins.timm.block_sites import attention_sites
from relbias.plugins.timm.host import Host, UnsupportedError, is_exactly
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.stages import image_size, stages_of
from relbias.plugins.timm.unsupported import reason
from relbias.plugins.timm.vision_transformer import ATTENTIONS
from relbias.relations import Grid

with extra("vision"):
    from timm.models.byobnet import ByobNet
    from timm.models.mobilevit import MobileVitBlock, MobileVitV2Block


class AttachedByobNet(AttachedModel, ByobNet):
    """A ByobNet with an encoding attached."""

    host_class = ByobNet


class AttachedMobileVitBlock(MobileVitBlock):
    """A block that binds the grid of its patches. It stretches a map that they do not divide."""

    host_class = MobileVitBlock

    def forward(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, C, height, width)."""
        with bind((-(-x.shape[-2] // self.patch_size[0]), -(-x.shape[-1] // self.patch_size[1]))):
            return super().forward(x)


def attends(root: nn.Module) -> bool:
    """Whether a model has such blocks."""
    return any(is_exactly(module, MobileVitBlock) for module in root.modules())


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention modules of the MobileViT blocks; `grid` is that of the first."""
    found = _blocks(root)
    first, sites = found[0][1], []
    for block, steps in found:
        coarser = (-(-grid[0] * first[0] // steps[0]), -(-grid[1] * first[1] // steps[1]))
        sites += attention_sites(block.transformer, Grid(*coarser), *ATTENTIONS)
    return sites


def own_grid(root: Any) -> tuple[int, int]:
    """The patches of the first block, of the images that the architecture was trained for."""
    (_, steps), *_ = _blocks(root)
    height, width = image_size(root)
    return -(-height // steps[0]), -(-width // steps[1])


def blocks(root: Any) -> dict[nn.Module, type[nn.Module]]:
    """The blocks, which bind the grids."""
    return {block: AttachedMobileVitBlock for block, _ in _blocks(root)}


def _blocks(root: Any) -> list[tuple[Any, tuple[int, int]]]:
    """The MobileViT blocks and the height and width of their patches, in pixels of the image."""
    if not attends(root):
        linear = any(is_exactly(module, MobileVitV2Block) for module in root.modules())
        raise UnsupportedError(
            "its attention is linear: the weight of a key is the same for every query" if linear else reason(root)
        )
    return [
        (module, (reduction * module.patch_size[0], reduction * module.patch_size[1]))
        for reduction, stage in stages_of(root)
        for module in stage.modules()
        if is_exactly(module, MobileVitBlock)
    ]


HOSTS = [
    Host(
        root=ByobNet,
        modules=("mobilevit",),
        sites=find_sites,
        classes=lambda root: {root: AttachedByobNet, **blocks(root)},
        grid=own_grid,
        refused=("mobilevitv2_*",),
    )
]
