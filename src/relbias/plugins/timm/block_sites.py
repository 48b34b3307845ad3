"""The attention modules of a model that is a row of blocks with one grid of patches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relbias._extras import extra
from relbias.plugins.engine import Site
from relbias.plugins.timm.host import UnsupportedError, is_exactly
from relbias.relations import Relation

with extra("vision"):
    from timm.layers import PatchEmbed


def block_sites(blocks: Iterable[Any], relation: Relation, *swapped: Any) -> list[Site]:
    """The `attn` of every block.

    Args:
        blocks: of a model.
        relation: of their tokens.
        *swapped: the classes that take the places of timm's, each the `host_class` of one.

    Raises:
        UnsupportedError: a block attends by another class.
    """
    sites = []
    for block in blocks:
        attention = getattr(block, "attn", block)
        found = next((new for new in swapped if is_exactly(attention, new.host_class)), None)
        if found is None:
            names = " or ".join(new.host_class.__name__ for new in swapped)
            raise UnsupportedError(f"its blocks attend by {type(attention).__name__}, not by timm's {names}")
        weight = next(attention.parameters())
        sites.append(Site(attention, found, attention.num_heads, head_dim(attention), weight, relation))
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
