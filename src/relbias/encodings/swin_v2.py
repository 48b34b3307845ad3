"""Swin v2's continuous biases over the logarithm of the offset."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.encodings.resize import Unit
from relbias.relations import Grid, GridIndex, Relation
from relbias.relations.base import check_size, num_prefix_codes
from relbias.terms import Terms

_LARGEST_LOG_SCALE = math.log(100.0)


class SwinV2(Encoding):
    """A learned function of log-spaced offsets, Swin v2's continuous position bias (https://arxiv.org/abs/2111.09883).

    b_ij = 16 sigmoid(f_h(l(dy / (H - 1)), l(dx / (W - 1)))), l(x) = sign(x) log2(1 + |8 x|) / log2(8), where f is a
    network with one hidden layer of rectified units and no bias in the last, and H x W the grid on which it is
    trained; along an axis of one patch the offset is 0. Kinds of pairs with a prefix token have a learned number z
    each, b = 16 sigmoid(z): the paper has no such tokens, and without a bias a patch would hardly see them beside
    patches, whose bias starts at 8. A larger grid needs nothing, its offsets keep their meaning in patches.

    The paper's attention (`scale="paper"`) normalises q and k and multiplies with a learned factor per head,
    c = exp(min(log_scale, ln 100)).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Grid without max_distance, in Swin a window.
        width: of the hidden layer, in units.
        pretrained_window: (height, width), in patches, of the grid by which offsets are divided, where that is not
            the relation's: the one on which the weights were trained.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters; the network is computed at least in float32.

    Attributes:
        hidden: the linear map from (dy, dx) to `width`; weights drawn with a standard deviation of 0.02, as the
            authors do, biases zero.
        out: the linear map from `width` to H, without bias, likewise.
        prefix: (H, 2 P + P^2), z of the kinds of pairs with a prefix token in the order of the Grid's codes, likewise,
            or None without prefix tokens.
        log_scale: (H,), ln 10 at the start, or None where attention has another scale.

    Raises:
        ValueError: `width` or `pretrained_window` is wrong, or the relation is clipped.

    Example:
        >>> encoding = SwinV2(num_heads=3, head_dim=32, relation=Grid(8, 8))
        >>> encoding(Grid(8, 8)()).names
        ('b',)
        >>> encoding.paper_scale.detach().numpy().round(4)
        array([10., 10., 10.], dtype=float32)
    """

    name = "swin_v2"
    formula = "b = 16 sigmoid(f_h(l(dy), l(dx))), l(x) = sign(x) log2(1 + |8 x|) / 3"
    paper = "Liu et al. 2022, https://arxiv.org/abs/2111.09883"
    relations = (Grid,)
    paper_normalize = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        width: int = 512,
        pretrained_window: tuple[int, int] | None = None,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'swin_v2' width", width, 1)
        if self.relation.max_distance is not None:
            raise ValueError(f"'swin_v2' is a function of the offset and takes a Grid unclipped, got {self.relation!r}")
        window = (self.relation.height, self.relation.width) if pretrained_window is None else pretrained_window
        if not isinstance(window, tuple | list) or len(window) != 2:
            raise ValueError(f"'swin_v2' pretrained_window is (height, width), in patches, got {pretrained_window!r}")
        check_size("'swin_v2' pretrained_window's height", window[0], 1)
        check_size("'swin_v2' pretrained_window's width", window[1], 1)
        self.window, self.pretrained_window = tuple(window), pretrained_window
        # Not filled twice, so that a seed gives the same start as reset_parameters().
        like = {"device": self.device, "dtype": self._like.dtype}
        self.hidden = nn.utils.skip_init(nn.Linear, 2, width, **like)
        self.out = nn.utils.skip_init(nn.Linear, width, num_heads, bias=False, **like)
        kinds = num_prefix_codes(self.relation.prefix_tokens)
        self.prefix = self._parameter(num_heads, kinds) if kinds else None
        self.log_scale: nn.Parameter | None = self._parameter(num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        super().reset_parameters()
        nn.init.normal_(self.hidden.weight, std=0.02)
        nn.init.zeros_(self.hidden.bias)
        nn.init.normal_(self.out.weight, std=0.02)
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(10.0))

    @property
    def paper_scale(self) -> Tensor | None:
        """The learned factor c, (H,), at least in float32, or None without one."""
        if self.log_scale is None:
            return None
        dtype = torch.promote_types(self.log_scale.dtype, torch.float32)
        return self.log_scale.to(dtype).clamp(max=_LARGEST_LOG_SCALE).exp()

    def drop_paper_scale(self) -> None:
        """Remove `log_scale`."""
        self.log_scale = None

    def forward(self, index: GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        dtype = torch.promote_types(self.hidden.weight.dtype, torch.float32)
        axes = [
            _log_spaced(torch.arange(-limit, limit + 1, device=self.device).double() / max(size - 1, 1))
            for limit, size in zip(index.limits, self.window, strict=True)
        ]
        offsets = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, 1).to(dtype)
        weight, bias, out = (p.to(dtype) for p in (self.hidden.weight, self.hidden.bias, self.out.weight))
        with without_autocast(weight):
            numbers = out @ (offsets @ weight.mT + bias).relu().mT
        if self.prefix is not None:
            numbers = torch.cat((numbers, self.prefix.to(dtype)), dim=1)
        return Terms(b=16 * numbers.sigmoid(), index=index)

    def resize(self, relation: Relation, unit: Unit = "patch") -> None:
        """Note another size of the grid, where `pretrained_window` says by what offsets are divided.

        Raises:
            ValueError: without it: built anew over the other grid the biases of all offsets would differ.
        """
        if self.pretrained_window is None and relation != self.relation:
            raise ValueError(
                "'swin_v2' takes a grid of any size as it is; to build it over another one give it "
                f"pretrained_window={self.window}, by which its offsets are divided now"
            )
        super().resize(relation, unit)

    def zero_(self) -> None:
        """Start the strength per head at zero; attention keeps a scale of its own."""
        super().zero_()
        self.drop_paper_scale()


def _log_spaced(x: Tensor) -> Tensor:
    """Sign(x) log2(1 + |8 x|) / log2(8), elementwise."""
    return x.sign() * (8 * x.abs() + 1).log2() / 3
