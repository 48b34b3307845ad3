"""An encoding of the tokens between two blocks of a model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relbias.plugins.grids import index_of_call


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
