"""A model that binds the grid of its image for its blocks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relbias.plugins.binding import bind, bind_children
from relbias.plugins.grids import SomePatches
from relbias.plugins.timm.patch_dropout import drops_patches


class BindsImageGrid:
    """Binds the grid in the two methods that every way into a model leads through.

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
        return SomePatches(*grid) if drops_patches(self) else grid

    def _bound(self, grid: Any) -> Any:
        model: Any = self
        return bind_children(model, "blocks", grid) if self.grad_checkpointing else self
