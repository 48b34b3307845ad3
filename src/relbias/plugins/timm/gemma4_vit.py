"""timm's vision encoder of Gemma 4, alone or in a classifier."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from relbias._extras import extra
from relbias.encodings import Encoding
from relbias.plugins.binding import bind
from relbias.plugins.engine import Site
from relbias.plugins.grids import index_of_call
from relbias.plugins.timm.attend import attend
from relbias.plugins.timm.block_sites import block_sites
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.host_rotation import HostTurn
from relbias.plugins.timm.image_grid import BindsImageGrid
from relbias.plugins.timm.qkv import project_apart
from relbias.relations import Grid

with extra("vision"):
    from timm.models.gemma4_vit import Gemma4Attention, Gemma4VitEncoder, apply_multidimensional_rope


class RelativeGemma4Attention(Gemma4Attention):
    """Gemma 4's attention with an encoding of the relation between patches at `self.encoding`."""

    host_class = Gemma4Attention
    encoding: Encoding

    def forward(self, x: Tensor, rope_cos: Tensor, rope_sin: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """As in timm; x is (B, N, C), the patches row by row."""
        q, k, v = project_apart(self, x)
        q, k, v = self.q_norm(q), self.k_norm(k), self.v_norm(v)

        def apply(heads: Tensor) -> Tensor:
            turned = apply_multidimensional_rope(heads.transpose(1, 2), rope_cos, rope_sin)
            return turned.transpose(1, 2).to(heads.dtype)

        index = index_of_call(self.encoding, x.shape[1], True)
        # A head is cut into a half that turns by x and one that turns by y, each in its own halves.
        out = attend(self, q, k, v, x, index, turn=HostTurn(apply, parts=2), attn_mask=attn_mask, scale=1.0)
        return self.proj_drop(self.o_proj(out.transpose(1, 2).flatten(2)))


class AttachedGemma4VitEncoder(BindsImageGrid, Gemma4VitEncoder):
    """A Gemma4VitEncoder that binds the grid of its image."""

    host_class = Gemma4VitEncoder

    def forward(self, x: Any, patch_coord: Tensor | None = None, patch_valid: Tensor | None = None) -> Tensor:
        """As in timm, for images; x is (B, C, height, width), in pixels."""
        _check_image(x, patch_coord)
        grid = self._grid(x)
        with bind(grid):
            host: Any = super(BindsImageGrid, self._bound(grid))
            return host.forward(x)

    def forward_features(self, x: Any, patch_coord: Tensor | None = None, patch_valid: Tensor | None = None) -> Any:
        """As in timm, for images; x is (B, C, height, width), in pixels."""
        _check_image(x, patch_coord)
        return super().forward_features(x)

    def forward_intermediates(
        self, x: Any, patch_coord: Tensor | None = None, patch_valid: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As in timm, for images; x is (B, C, height, width), in pixels."""
        _check_image(x, patch_coord)
        return super().forward_intermediates(x, None, None, *args, **kwargs)

    def image_grid(self, x: Tensor) -> tuple[int, int]:
        """The patches of an image, (height, width)."""
        return x.shape[-2] // self.patch_size[0], x.shape[-1] // self.patch_size[1]


def _check_image(x: Any, patch_coord: Tensor | None) -> None:
    if isinstance(x, dict) or x.ndim != 4 or patch_coord is not None:
        raise ValueError(
            "a model with a relative encoding attached takes images (batch, channels, height, width) here, "
            "not patches with coordinates: their grid is not known"
        )


def find_sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    """The attention of the blocks."""
    return block_sites(root.blocks, Grid(*grid), RelativeGemma4Attention)


def _usual_grid(root: Any) -> tuple[int, int]:
    """That of the size of images that timm's class has by default; an encoder does not keep the one it is given."""
    size = inspect.signature(Gemma4VitEncoder).parameters["img_size"].default
    return size // root.patch_size[0], size // root.patch_size[1]


HOSTS = [
    Host(
        root=Gemma4VitEncoder,
        modules=("gemma4_vit",),
        sites=find_sites,
        classes=lambda root: {root: AttachedGemma4VitEncoder},
        grid=_usual_grid,
    )
]
