"""timm's PoolingVisionTransformer (PiT): stages of blocks, each over a coarser grid and with the same prefix tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias._extras import extra
from relbias.plugins.binding import bind
from relbias.plugins.engine import Site
from relbias.plugins.timm.block_sites import attention_sites
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.positions import without_positions
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.vision_transformer import ATTENTIONS
from relbias.relations import Grid

with extra("vision"):
    from timm.models.pit import PoolingVisionTransformer, Transformer


class AttachedPoolingVisionTransformer(AttachedModel, PoolingVisionTransformer):
    """A PoolingVisionTransformer whose absolute positions may be dropped."""

    host_class = PoolingVisionTransformer

    def forward_features(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, C, height, width), in pixels."""
        return super(AttachedPoolingVisionTransformer, without_positions(self)).forward_features(x)

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        return super(AttachedPoolingVisionTransformer, without_positions(self)).forward_intermediates(
            x, *args, **kwargs
        )


class AttachedTransformer(Transformer):
    """A stage that binds the grid of its feature map, which it is given as a map, after pooling."""

    host_class = Transformer

    def forward(self, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """As in timm; x is the map, (B, C, height, width), and the prefix tokens, (B, P, C)."""
        features, prefix = x
        if self.pool is not None:
            features, prefix = self.pool(features, prefix)
        height, width = features.shape[-2:]
        tokens = self.norm(torch.cat((prefix, features.flatten(2).transpose(1, 2)), dim=1))
        with bind((height, width)):
            tokens = self.blocks(tokens)
        prefix, patches = tokens.tensor_split([prefix.shape[1]], dim=1)
        return patches.transpose(1, 2).reshape(features.shape), prefix


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention modules of the stages; `grid` is that of the first."""
    sites = []
    for stage in root.transformers:
        if stage.pool is not None:
            grid = _strided(stage.pool.conv, grid)
        sites += attention_sites(stage, Grid(*grid, prefix_tokens=root.num_tokens), *ATTENTIONS)
    return sites


def _strided(conv: Any, grid: tuple[int, int]) -> tuple[int, int]:
    """What a convolution leaves of a grid."""
    height, width = (
        (size + 2 * padding - kernel) // stride + 1
        for size, padding, kernel, stride in zip(grid, conv.padding, conv.kernel_size, conv.stride, strict=True)
    )
    return height, width


def _classes(root: Any) -> dict[nn.Module, type[nn.Module]]:
    return {root: AttachedPoolingVisionTransformer, **dict.fromkeys(root.transformers, AttachedTransformer)}


HOSTS = [
    Host(root=PoolingVisionTransformer, modules=("pit",), sites=find_sites, classes=_classes, positions=("pos_embed",))
]
