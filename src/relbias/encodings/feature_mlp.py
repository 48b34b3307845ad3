"""A bias from real numbers between two tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.encodings.row_blocks import in_row_blocks
from relbias.relations import Features, FeaturesIndex, Relation
from relbias.relations.base import check_size
from relbias.terms import Terms


class FeatureMLP(Encoding):
    """A network with one hidden layer over the features of a pair, b_ij = MLP_h(f_ij).

    The features are what you give, for example random walk probabilities as in GRIT (https://arxiv.org/abs/2305.17589,
    whose attention is another one) from `relbias.relations.random_walks`, or the resistance between two nodes from
    `resistance_distances`. The hidden layer has GELU units and is computed some rows at a time, so that it is never in
    memory for all pairs.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Features of F features.
        width: of the hidden layer, in units.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        hidden: the linear map from F to `width`, drawn as torch draws one.
        out: the linear map from `width` to H, likewise.

    Raises:
        ValueError: `width` is not positive, or the relation is not a Features.

    Example:
        >>> import relbias as rb
        >>> features = Features(num_features=2)
        >>> attention = rb.RelativeAttention(64, 8, "feature_mlp", features)
        >>> path = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
        >>> attention(torch.randn(1, 3, 64), index=features(rb.relations.resistance_distances(path))).shape
        torch.Size([1, 3, 64])
    """

    name = "feature_mlp"
    formula = "b = MLP_h(f), f the features of (i, j)"
    paper = "Ma et al. 2023, https://arxiv.org/abs/2305.17589"
    relations = (Features,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        width: int = 32,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'feature_mlp' width", width, 1)
        # Not filled twice, so that a seed gives the same start as reset_parameters().
        like = {"device": self.device, "dtype": self._like.dtype}
        self.hidden = nn.utils.skip_init(nn.Linear, self.relation.num_features, width, **like)
        self.out = nn.utils.skip_init(nn.Linear, width, num_heads, **like)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        super().reset_parameters()
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def forward(self, index: FeaturesIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        # Converted once and not for each block of rows, so that the gradients of blocks add up before they are rounded.
        dtype = torch.promote_types(self.out.weight.dtype, torch.float32)
        weights = [p.to(dtype) for p in (self.hidden.weight, self.hidden.bias, self.out.weight, self.out.bias)]
        (batch, _), (n, m) = index.batch_heads, index.shape

        def bias(rows: slice) -> Tensor:
            return head_mlp(index.features(rows).to(dtype), *weights)

        return Terms(b=lambda rows: in_row_blocks(bias, rows, n, batch * m * len(weights[1])), index=index)

    def zero_(self) -> None:
        """Set the network's last layer to zero."""
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)


def head_mlp(inputs: Tensor, hidden: Tensor, hidden_bias: Tensor, out: Tensor, out_bias: Tensor) -> Tensor:
    """A network with one hidden layer of GELU units for each pair.

    Args:
        inputs: (B, n, M, F).
        hidden: (width, F).
        hidden_bias: (width,).
        out: (H, width).
        out_bias: (H,).

    Returns:
        (B, H, n, M).
    """
    linear = nn.functional.linear
    with without_autocast(inputs):
        return linear(nn.functional.gelu(linear(inputs, hidden, hidden_bias)), out, out_bias).movedim(-1, 1)
