"""An encoding of the tokens between two blocks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from relbias.plugins.grids import index_of_call
from relbias.plugins.sites import Site
from relbias.plugins.timm.host import UnsupportedError
from relbias.plugins.timm.patch_dropout import telling


class EncodesTokens:
    """Applies the encoding at `self.encoding` to the tokens that a block gives. The block's own class is the next base.

    The block's tokens are (B, N, C), prefix tokens first, then the patches row by row.
    """

    encoding: Any

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """As in timm; x is (B, N, C)."""
        host: Any = super()
        x = host.forward(x, *args, **kwargs)
        return self.encoding.embed(x, index_of_call(self.encoding, x.shape[1], True))


def first_block(root: Any, attention: Site, classes: Sequence[type[nn.Module]]) -> Site:
    """The first block of a model as the place of an encoding of its tokens.

    Args:
        root: with `blocks`, `embed_dim` and perhaps `patch_drop`.
        attention: a site within the block, which has the number of heads and the relation.
        classes: made of EncodesTokens, one for each class of blocks.

    Raises:
        UnsupportedError: the block is of another class, or patches are dropped before it.
    """
    if hasattr(root, "patch_drop") and telling(root):
        raise UnsupportedError("its patch dropout leaves holes in the grid; create it with patch_drop_rate=0")
    block = root.blocks[0]
    swapped = {cls.host_class: cls for cls in classes}.get(type(block))  # ty: ignore[missing-attribute]
    if swapped is None:
        raise UnsupportedError(f"its first block is a {type(block).__name__}")
    heads = attention.num_heads if root.embed_dim % attention.num_heads == 0 else 1
    return Site(block, swapped, heads, root.embed_dim // heads, next(block.parameters()), attention.relation)
