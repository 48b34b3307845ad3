"""timm's CSATv2: convolutional stages, at the end of which blocks attend over the whole feature map.

Its convolutional blocks have an attention too, SpatialTransformerBlock. It stays as it is: its product of queries and
keys is over the positions, so what attends to each other are the images of a batch.
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
    from timm.models.csatv2 import CSATv2, TransformerBlock


class AttachedCSATv2(AttachedModel, CSATv2):
    """A CSATv2 with an encoding attached."""

    host_class = CSATv2


class AttachedTransformerBlock(TransformerBlock):
    """A block that binds the grid of the feature map that it is given."""

    host_class = TransformerBlock

    def forward(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, C, height, width)."""
        with bind((x.shape[-2], x.shape[-1])):
            return super().forward(x)


def attends(root: nn.Module) -> bool:
    """Whether a model has such blocks."""
    return any(is_exactly(module, TransformerBlock) for module in root.modules())


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention modules of the blocks that attend; `grid` is that of the first."""
    found = _blocks(root)
    first, sites = found[0][1], []
    for block, reduction in found:
        coarser = (max(1, grid[0] * first // reduction), max(1, grid[1] * first // reduction))
        sites += attention_sites(block, Grid(*coarser), *ATTENTIONS)
    return sites


def own_grid(root: Any) -> tuple[int, int]:
    """The first map that is attended over, of the images that the architecture was trained for."""
    (_, reduction), *_ = _blocks(root)
    height, width = image_size(root)
    return height // reduction, width // reduction


def blocks(root: Any) -> dict[nn.Module, type[nn.Module]]:
    """The blocks, which bind the grids."""
    return {block: AttachedTransformerBlock for block, _ in _blocks(root)}


def _blocks(root: Any) -> list[tuple[Any, int]]:
    """The blocks that attend and by how much their map is smaller than the image."""
    if not attends(root):
        raise UnsupportedError(reason(root))
    return [
        (module, reduction)
        for reduction, stage in stages_of(root)
        for module in stage.modules()
        if is_exactly(module, TransformerBlock)
    ]


HOSTS = [
    Host(
        root=CSATv2,
        modules=("csatv2",),
        sites=find_sites,
        classes=lambda root: {root: AttachedCSATv2, **blocks(root)},
        grid=own_grid,
    )
]
