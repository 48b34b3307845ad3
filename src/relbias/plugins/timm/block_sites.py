"""The attention modules of a model that is a row of blocks with one grid of patches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from relbias._extras import extra
from relbias.plugins.engine import Site
from relbias.plugins.timm.host import UnsupportedError, is_exactly
from relbias.relations import Grid

with extra("vision"):
    from timm.layers import PatchEmbed


def patch_sites(root: Any, grid: tuple[int, int], *swapped: Any) -> list[Site]:
    """The attention modules of the blocks of a model whose tokens are the patches of a grid, after prefix tokens.

    Args:
        root: with `patch_embed`, `blocks` and `num_prefix_tokens`.
        grid: (height, width), in patches.
        *swapped: as in `attention_sites`.

    Raises:
        UnsupportedError: it has another patch embedding, or a block attends by another class.
    """
    check_patches(root)
    return block_sites(root.blocks, Grid(*grid, prefix_tokens=root.num_prefix_tokens), *swapped)


def block_sites(blocks: Iterable[Any], relation: Grid, *swapped: Any) -> list[Site]:
    """The attention modules of every block.

    Args:
        blocks: of a model.
        relation: of their tokens.
        *swapped: as in `attention_sites`.

    Raises:
        UnsupportedError: a block attends by another class.
    """
    sites = []
    for block in blocks:
        found = attention_sites(block, relation, *swapped)
        if not found:
            attention = type(getattr(block, "attn", block)).__name__
            usual = swapped[0].host_class.__name__
            raise UnsupportedError(f"its blocks attend by {attention}, not by timm's {usual}")
        sites += found
    return sites


def attention_sites(block: nn.Module, relation: Grid, *swapped: Any) -> list[Site]:
    """The modules within one that attend by some classes, all with the same relation.

    Args:
        block: or several, with everything inside.
        relation: of its tokens.
        *swapped: the classes that take the places of timm's, each the `host_class` of one, the usual first; with
            `values_per_query` where values are larger than queries.
    """
    sites = []
    modules: list[Any] = list(block.modules())
    for module in modules:
        new = next((new for new in swapped if is_exactly(module, new.host_class)), None)
        if new is not None:
            size = head_dim(module)
            value_dim = getattr(new, "values_per_query", 1) * size
            weight = next(module.parameters())
            sites.append(Site(module, new, module.num_heads, size, weight, relation, value_dim))
    return sites


def head_dim(attention: Any) -> int:
    """D of an attention of timm that may not say it."""
    return getattr(attention, "head_dim", None) or attention.proj.in_features // attention.num_heads


def check_patches(root: Any) -> None:
    """Refuse a model whose tokens are not the patches of a grid.

    Raises:
        UnsupportedError: it has another patch embedding.
    """
    if not isinstance(root.patch_embed, PatchEmbed):
        raise UnsupportedError(f"its patch embedding is a {type(root.patch_embed).__name__}, not a PatchEmbed")
