"""timm's NaFlexVit, which takes images, or batches of patches with their places in images of several sizes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relbias._extras import extra
from relbias.plugins.binding import bind, bind_children
from relbias.plugins.grids import SomePatches
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.patch_dropout import drops_patches, telling
from relbias.plugins.timm.positions import without_positions
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.vision_transformer import vit_sites

with extra("vision"):
    from timm.models.naflexvit import NaFlexEmbeds, NaFlexVit


class AttachedNaFlexVit(AttachedModel, NaFlexVit):
    """A NaFlexVit that binds the grid of its image, or the places of its patches."""

    host_class = NaFlexVit

    def forward_features(self, patches: Tensor, patch_coord: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in timm; patches is (B, C, height, width), in pixels, or (B, N, ...) at patch_coord, (B, N, 2), (y, x)."""
        grid = self._grid(patches, patch_coord)
        with bind(grid):
            return super(AttachedNaFlexVit, self._bound(grid)).forward_features(patches, patch_coord, *args, **kwargs)

    def forward_intermediates(self, x: Tensor | dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """As in timm; x is an image, patches, or a mapping of patches and their places."""
        patches, patch_coord = (x["patches"], x["patch_coord"]) if isinstance(x, dict) else (x, None)
        grid = self._grid(patches, kwargs.get("patch_coord") if patch_coord is None else patch_coord)
        with bind(grid):
            return super(AttachedNaFlexVit, self._bound(grid)).forward_intermediates(x, *args, **kwargs)

    def _grid(self, patches: Tensor, places: Tensor | None) -> Any:
        if places is None:
            grid = self.embeds.dynamic_feat_size((patches.shape[-2], patches.shape[-1]))
            return SomePatches(*grid) if drops_patches(self) else grid
        # The smallest grid that holds every image of the batch; padding lies at its first patch and is masked.
        height, width = (places.amax(dim=(0, 1)) + 1).tolist()
        return SomePatches(height, width, places[..., 0] * width + places[..., 1])

    def _bound(self, grid: Any) -> Any:
        return bind_children(self, "blocks", grid) if self.grad_checkpointing else self


class AttachedNaFlexEmbeds(NaFlexEmbeds):
    """A NaFlexEmbeds that leaves out dropped positions."""

    host_class = NaFlexEmbeds

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As in timm."""
        return super(AttachedNaFlexEmbeds, without_positions(self)).forward(*args, **kwargs)


def own_grid(root: Any) -> tuple[int, int]:
    """That of the images it was made for, or of its position embedding where that is larger along an axis."""
    height, width = root.embeds.dynamic_feat_size(root.pretrained_cfg["input_size"][-2:])
    rows, columns = root.embeds.pos_embed_grid_size or (1, 1)
    return max(height, rows), max(width, columns)


HOSTS = [
    Host(
        root=NaFlexVit,
        modules=("naflexvit",),
        sites=vit_sites,
        classes=lambda root: {root: AttachedNaFlexVit, root.embeds: AttachedNaFlexEmbeds, **telling(root)},
        grid=own_grid,
        positions=("embeds.pos_embed",),
    )
]
