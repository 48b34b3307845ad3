"""What timm's models that attend in windows have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from relbias.plugins.engine import Site
from relbias.plugins.timm.host import UnsupportedError, is_exactly
from relbias.relations import Grid


def scaled(own: tuple[int, int], first: tuple[int, int], grid: tuple[int, int]) -> tuple[int, int]:
    """The size that belongs to a layer where the first layer has another one than its own.

    Args:
        own: of the layer, (height, width) in patches, in the model as it is.
        first: of the first layer, in the model as it is.
        grid: the other size of the first layer.

    Returns:
        own grid / first, rounded up.

    Example:
        >>> scaled((7, 7), (14, 14), (17, 20))
        (9, 10)
    """
    height, width = (-(-size * new // old) for size, old, new in zip(own, first, grid, strict=True))
    return height, width


def block_attentions(root: nn.Module, stage: type[nn.Module], attention: type[nn.Module]) -> list[Any]:
    """The attention of each block of a Swin Transformer.

    Args:
        root: the model, or what holds its stages.
        stage: the class of the stages, which have `blocks` with an attention at `attn`.
        attention: the class that they all have.

    Raises:
        UnsupportedError: one has another class.
    """
    stages: list[Any] = [module for module in root.modules() if is_exactly(module, stage)]
    found = [block.attn for module in stages for block in module.blocks]
    for module in found:
        if not is_exactly(module, attention):
            raise UnsupportedError(f"its blocks attend by {type(module).__name__}, not by timm's {attention.__name__}")
    return found


def window_sites(attentions: Sequence[Any], swapped: type[nn.Module], grid: tuple[int, int]) -> list[Site]:
    """The sites of a Swin Transformer, each over the offsets within its own window.

    Windows are shrunk to a stage's feature map where that is smaller, so they differ.

    Args:
        attentions: modules with `window_size`, `num_heads` and `qkv`.
        swapped: the class that takes the place of theirs.
        grid: of the first one's window, (height, width) in patches.
    """
    first = attentions[0].window_size
    return [
        Site(
            module,
            swapped,
            module.num_heads,
            module.qkv.weight.shape[0] // (3 * module.num_heads),
            module.qkv.weight,
            Grid(*scaled(module.window_size, first, grid)),
        )
        for module in attentions
    ]


def mask_of_windows(mask: Tensor | None, batch: int) -> Tensor | None:
    """The mask of shifted windows for a batch of images.

    Args:
        mask: (W, N, N), for each window of an image, or None.
        batch: B W, the images' windows one image after the other.

    Returns:
        (B W, 1, N, N), or None.
    """
    return None if mask is None else mask.repeat(batch // mask.shape[0], 1, 1)[:, None]
