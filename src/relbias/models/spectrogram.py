"""A transformer over the patches of a spectrogram."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from relbias.encodings import Encoding, EncodingSpec
from relbias.encodings.resize import Unit, check_unit
from relbias.models.block import TransformerBlock
from relbias.models.frame_lengths import check_frames
from relbias.models.input_encoding import split_encoding
from relbias.plugins.grids import resize_encodings
from relbias.relations import Grid
from relbias.relations.base import check_size


class SpectrogramTransformer(nn.Module):
    """Classes of spectrograms cut into patches of frames and mel bands, as in AST (https://arxiv.org/abs/2104.01778).

    The relation between tokens is the offset of their patches in frequency and time, `Grid(bands, frames)` counted in
    patches. Patches do not overlap, and the mean of those that hold a frame of the clip summarises it, so that a clip
    in a batch of longer ones gives the logits that it gives alone. An encoding that is applied at the input
    (sinusoidal, learned) is built once, any other one for each block; a built encoding is shared.

    Args:
        encoding: a name, a mapping, a callable or a built encoding; see `create_encoding`.
        num_classes: how many classes.
        num_mels: F, a multiple of a patch's bands.
        num_frames: of the clips that tables are made for; encodings without a table take any number.
        patch_size: (frames, bands) of a patch.
        dim: the size of a token.
        depth: how many blocks.
        num_heads: H, a divisor of `dim`.
        mlp_ratio: the width of a block's network, as a multiple of `dim`.
        dropout: the probability of dropping an attention weight, and a number of each branch's output.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: the bands do not divide into patches, or the encoding does not take a grid.

    Example:
        >>> model = SpectrogramTransformer("rope_axial", num_classes=10, num_mels=32, num_frames=64, patch_size=(4, 8),
        ...                                dim=48, depth=2, num_heads=4)
        >>> model(torch.randn(2, 50, 32), torch.tensor([50, 31])).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        encoding: EncodingSpec | Encoding,
        *,
        num_classes: int,
        num_mels: int = 128,
        num_frames: int = 1024,
        patch_size: tuple[int, int] = (16, 16),
        dim: int = 192,
        depth: int = 12,
        num_heads: int = 3,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if len(patch_size) != 2:
            raise ValueError(f"patch_size is (frames, bands), got {patch_size!r}")
        for name, size in (("patch_size", min(patch_size)), ("num_frames", num_frames), ("num_mels", num_mels)):
            check_size(name, size, 1)
        if num_mels % patch_size[1]:
            raise ValueError(f"num_mels must be a multiple of a patch's bands, got {num_mels} and {patch_size[1]}")
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        self.num_mels, self.patch = num_mels, (patch_size[0], patch_size[1])
        grid = Grid(num_mels // patch_size[1], -(-num_frames // patch_size[0]))
        like: Any = {"device": device, "dtype": dtype}
        self.patch_embedding = nn.Linear(patch_size[0] * patch_size[1], dim, **like)
        self.position, per_block = split_encoding(encoding, num_heads, dim // num_heads, grid, **like)
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

    def prepare_for_size(self, size: int, unit: Unit = "patch") -> None:
        """Read the tables anew for clips of another length, in place; other encodings take any as they are.

        Args:
            size: the greatest length of the clips, in frames.
            unit: what an offset in a table keeps, its number of patches ("patch") or its part of the clip ("image");
                see `resize_table`.

        Raises:
            ValueError: the size is below 1, or the unit is unknown.

        Example:
            >>> model = SpectrogramTransformer("table", num_classes=10, num_mels=32, num_frames=64, patch_size=(4, 8),
            ...                                dim=48, depth=1, num_heads=4)
            >>> model.prepare_for_size(100)
            >>> model(torch.randn(2, 100, 32)).shape
            torch.Size([2, 10])
        """
        check_size("size", size, 1)
        check_unit(unit)
        at_input = [] if self.position is None else [self.position]
        encodings = [*at_input, *(block.attention.encoding for block in self.blocks)]
        grid = (self.num_mels // self.patch[1], -(-size // self.patch[0]))
        tables = {encoding: grid for encoding in encodings if encoding.fixed_size}
        if tables:
            resize_encodings(tables, unit)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The logits of the classes.

        Args:
            features: (B, T, F). A table needs T of at most `num_frames`, or of what :meth:`prepare_for_size` was given;
                encodings without a table take any.
            lengths: (B,) integers from 1 to T, the frames of each clip; what stands after them is not read. None for T.

        Returns:
            (B, num_classes).

        Raises:
            ValueError: shapes do not fit, a clip has no frames or more than there are, or they exceed the table's size.
        """
        if features.ndim != 3 or features.shape[2] != self.num_mels or not features.shape[1]:
            raise ValueError(f"features must be (B, T, {self.num_mels}) with a frame, got {tuple(features.shape)}")
        (p, q), frames = self.patch, features.shape[1]
        width, height = -(-frames // p), self.num_mels // q
        x = torch.nn.functional.pad(features, (0, 0, 0, width * p - frames))
        padding = None
        if lengths is not None:
            lengths = check_frames(lengths, len(features), frames)
            inside = torch.arange(width * p, device=x.device) < lengths[:, None]
            x = x.masked_fill(~inside[..., None], 0)
            padding = ~inside[:, ::p].repeat(1, height)  # the tokens of a band stand together
        x = self.patch_embedding(rearrange(x, "b (t p) (f q) -> b (f t) (p q)", p=p, q=q))
        if padding is not None:  # a convolution over the grid sees zeros there, as it does outside the grid
            x = x.masked_fill(padding[..., None], 0)
        if self.position is not None:
            x = self.position.embed(x, self.position.grid_index(height, width))
        for block in self.blocks:
            x = block(x, index=block.attention.encoding.grid_index(height, width), key_padding_mask=padding)
        return self.head(self.norm(x.mean(dim=1) if padding is None else _mean(x, ~padding)))


def _mean(x: Tensor, kept: Tensor) -> Tensor:
    """The mean of the tokens x, (B, N, dim), that are kept, (B, N) bool; zeros where none is."""
    return x.masked_fill(~kept[..., None], 0).sum(1) / kept.sum(1, keepdim=True).clamp(min=1)
