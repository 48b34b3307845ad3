"""A small vision transformer, for training from scratch."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from relbias.encodings import Encoding, EncodingSpec, create_encoding
from relbias.encodings.resize import Unit, check_unit
from relbias.models.block import TransformerBlock
from relbias.plugins.grids import resize_encodings
from relbias.relations import Grid
from relbias.relations.base import check_size


class VisionTransformer(nn.Module):
    """A vision transformer (https://arxiv.org/abs/2010.11929) that summarises an image by the mean of its patches.

    The relation between tokens is the offset of their patches, `Grid(height, width)`. An encoding that is applied at
    the input (sinusoidal, learned) is built once, any other one for each block; a built encoding is shared.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`.
        image_size: the height and width of the images that tables are made for, in pixels.
        patch_size: the height and width of a patch, in pixels; divides `image_size`.
        in_channels: C.
        num_classes: how many classes.
        dim: the size of a token.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: the image does not divide into patches, or the encoding does not take a grid.

    Example:
        >>> model = VisionTransformer("table", image_size=16, patch_size=2, in_channels=1, num_classes=10,
        ...                           dim=64, depth=4, num_heads=4)
        >>> model(torch.randn(2, 1, 16, 16)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        image_size: int,
        patch_size: int,
        in_channels: int = 3,
        num_classes: int,
        dim: int,
        depth: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if image_size < 1 or patch_size < 1 or image_size % patch_size:
            raise ValueError(f"image_size must be a multiple of patch_size, got {image_size} and {patch_size}")
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        self.patch_size, self.in_channels = patch_size, in_channels
        grid = Grid(image_size // patch_size, image_size // patch_size)
        like: Any = {"device": device, "dtype": dtype}
        self.patch_embedding = nn.Linear(in_channels * patch_size**2, dim, **like)
        first = create_encoding(encoding, num_heads, dim // num_heads, grid)
        at_input = hasattr(first, "embed")
        self.position: Any = first.to(**like) if at_input else None
        per_block = "none" if at_input else encoding
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(dim, num_heads, per_block, grid, mlp_ratio=mlp_ratio, dropout=dropout, **like)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, **like)
        self.head = nn.Linear(dim, num_classes, **like)

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        position = [] if self.position is None else [self.position]
        for layer in (self.patch_embedding, *position, *self.blocks, self.norm, self.head):
            layer.reset_parameters()

    def prepare_for_size(self, size: int, unit: Unit = "image") -> None:
        """Read the tables anew for square images of another size, in place; other encodings take any as they are.

        Args:
            size: the side of the images, in pixels.
            unit: what an offset in a table keeps, its part of the "image" or its number of patches ("patch"); see
                `resize_table`.

        Raises:
            ValueError: the size is no multiple of the patch size, or the unit is unknown.

        Example:
            >>> model = VisionTransformer("table", image_size=16, patch_size=2, in_channels=1, num_classes=10,
            ...                           dim=64, depth=1, num_heads=4)
            >>> model.prepare_for_size(24)
            >>> model(torch.randn(2, 1, 24, 24)).shape
            torch.Size([2, 10])
        """
        check_size("size", size, 1)
        if size % self.patch_size:
            raise ValueError(f"size must be a multiple of the patch size {self.patch_size}, got {size}")
        check_unit(unit)
        at_input = [] if self.position is None else [self.position]
        encodings = [*at_input, *(block.attention.encoding for block in self.blocks)]
        grid = (size // self.patch_size, size // self.patch_size)
        tables = {encoding: grid for encoding in encodings if encoding.fixed_size}
        if tables:
            resize_encodings(tables, unit)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the classes.

        Args:
            images: (B, C, height, width), each side a multiple of the patch size. A table needs sides of at most
                `image_size`, or of what :meth:`prepare_for_size` was given; encodings without a table take any.

        Returns:
            (B, num_classes).

        Raises:
            ValueError: the images have other channels, do not divide into patches, or exceed the table's size.
        """
        p = self.patch_size
        c = self.in_channels
        if images.ndim != 4 or images.shape[1] != c or images.shape[-2] % p or images.shape[-1] % p:
            raise ValueError(
                f"images must be (B, {c}, height, width) with sides that {p} divides, got {tuple(images.shape)}"
            )
        height, width = images.shape[-2] // p, images.shape[-1] // p
        x = self.patch_embedding(rearrange(images, "b c (h p) (w q) -> b (h w) (c p q)", p=p, q=p))
        if self.position is not None:
            x = self.position.embed(x, self.position.grid_index(height, width))
        for block in self.blocks:
            x = block(x, index=block.attention.encoding.grid_index(height, width))
        return self.head(self.norm(x.mean(dim=1)))
