"""A model that binds the grid of its image for its blocks."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn
from torch.nn.functional import pad

from relbias._extras import extra
from relbias.plugins.binding import bind, bind_children, bound
from relbias.plugins.grids import SomePatches
from relbias.plugins.timm.patch_dropout import drops_patches
from relbias.plugins.timm.positions import without_positions
from relbias.plugins.timm.root import AttachedModel

with extra("vision"):
    from timm.layers import HybridEmbed, nchw_to


class BindsImageGrid(AttachedModel):
    """Binds the grid in the two methods that every way into a model leads through, and leaves out dropped positions.

    Of a model with `patch_embed`, `blocks` and `grad_checkpointing`; the model's own class is the next base.
    """

    patch_embed: Any
    grad_checkpointing: bool

    def forward_features(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        grid = self._grid(x)
        with bind(grid):
            host: Any = super(BindsImageGrid, self._bound(grid))
            return host.forward_features(x, *args, **kwargs)

    def forward_intermediates(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is (B, C, height, width), in pixels."""
        grid = self._grid(x)
        with bind(grid):
            host: Any = super(BindsImageGrid, self._bound(grid))
            return host.forward_intermediates(x, *args, **kwargs)

    def image_grid(self, x: Tensor) -> tuple[int, int]:
        """The patches of an image, (height, width)."""
        return self.patch_embed.dynamic_feat_size(x.shape[-2:])

    def _grid(self, x: Tensor) -> Any:
        grid = self.image_grid(x)
        corrected = isinstance(self.patch_embed, AttachedHybridEmbed)
        return SomePatches(*grid) if corrected or drops_patches(self) else grid

    def _bound(self, grid: Any) -> Any:
        model: Any = without_positions(cast(nn.Module, self))
        return bind_children(model, "blocks", grid) if self.grad_checkpointing else model


class AttachedHybridEmbed(HybridEmbed):
    """A HybridEmbed that corrects the grid that is bound by that of its features.

    Its `dynamic_feat_size` divides the image by a ratio and rounds down, but strided convolutions with padding round
    up: of 240 x 200 pixels at a stride of 16 it says 15 x 12 where there are 15 x 13.
    """

    host_class = HybridEmbed

    def forward(self, x: Tensor) -> Tensor:
        """As in timm; x is (B, C, height, width), in pixels."""
        features = self.backbone(x)
        if isinstance(features, (list, tuple)):
            features = features[-1]
        if self.dynamic_img_pad:
            height, width = features.shape[-2:]
            features = pad(features, (0, -width % self.patch_size[1], 0, -height % self.patch_size[0]))
        patches = self.proj(features)
        grid = bound()
        if isinstance(grid, SomePatches):
            grid.height, grid.width = patches.shape[-2:]
        return patches.flatten(2).transpose(1, 2) if self.flatten else nchw_to(patches, self.output_fmt)
