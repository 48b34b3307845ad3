"""DeBERTa's disentangled attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from relbias.encodings.base import Encoding
from relbias.encodings.offsets import without_autocast
from relbias.relations import Relation, Sequence, SequenceIndex
from relbias.relations.base import check_size
from relbias.terms import Terms


def log_buckets(distances: Tensor, position_buckets: int, max_relative_positions: int) -> Tensor:
    """The bucket of each distance i - j.

    Distances up to half of the buckets keep their value. The rest of the buckets of a direction grow logarithmically
    up to max_relative_positions; what is farther gets buckets beyond these, to be clamped.

    Args:
        distances: int64 of any shape, in positions.
        position_buckets: the number of buckets of a direction.
        max_relative_positions: the distance at which they end, in positions.

    Returns:
        int64 of the same shape, with the sign of the distance.

    Example:
        >>> log_buckets(torch.tensor([-100, 128, 200, 300, 512, 600]), 256, 512)
        tensor([-100,  128,  169,  207,  256,  270])
    """
    middle = position_buckets // 2
    far = distances.abs().clamp(min=max(middle - 1, 1))
    # float32 as in DeBERTa's own code: the edges of the buckets depend on the rounding of the logarithms.
    end = torch.tensor((max_relative_positions - 1) / middle, dtype=torch.float32, device=distances.device)
    steps = torch.ceil(torch.log(far.float() / middle) / torch.log(end) * (middle - 1))
    return torch.where(far <= middle, distances, (steps.long() + middle) * distances.sign())


class DeBERTa(Encoding):
    """Keys and queries made from learned embeddings of the distance (https://arxiv.org/abs/2006.03654).

    s_ij = c (q_i . k_j + q_i . K_h[r_ij] + k_j . Q_h[r_ij]) with r_ij = clamp(bucket(i - j) + S, 0, 2 S - 1): content
    to position and position to content, both at the code of the pair (i, j). The paper's c (`scale="paper"`) is
    1 / sqrt(3 D), or 1 / sqrt(2 D) with one of the two.

    K and Q are projections of 2 S embeddings, by weights of their own as in DeBERTa v1 (which has
    `position_buckets=None`), or with `share_att_key` by those of the layer, after a layer normalisation, as in v2 and
    v3 (https://arxiv.org/abs/2111.09543).

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Sequence.
        position_buckets: S, the number of logarithmic buckets of a direction; None for one bucket per distance, up to
            S = max_relative_positions.
        max_relative_positions: the distance at which the buckets end, in positions.
        c2p: whether to have K, content to position.
        p2c: whether to have Q, position to content.
        share_att_key: whether the layer's own q_proj and k_proj project the embeddings. The encoding then needs
            `attention`.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        embeddings: (2 S, H D), drawn with a standard deviation of 0.02.
        key_weight: (H D, H D), gives K from the embeddings, likewise, or None. It has no bias, which would shift whole
            rows of logits.
        query_weight: (H D, H D), gives Q, likewise, or None.
        query_bias: (H D,), starts at zero, or None.
        norm_weight: (H D,), of the layer normalisation, starts at one, or None.
        norm_bias: (H D,), starts at zero, or None.

    Raises:
        ValueError: neither K nor Q is asked for, or max_relative_positions lies within the buckets of one distance.

    Example:
        >>> encoding = DeBERTa(num_heads=8, head_dim=64)
        >>> encoding(Sequence()(10)).names
        ('K', 'Q')
        >>> import relbias as rb
        >>> attention = rb.RelativeAttention(
        ...     32, 4, lambda heads, size, relation: DeBERTa(heads, size, relation, share_att_key=True), scale="paper"
        ... )
        >>> attention(torch.randn(2, 10, 32)).shape
        torch.Size([2, 10, 32])
    """

    name = "deberta"
    formula = "K[bucket(i - j)], Q[bucket(i - j)], projections of one embedding per bucket"
    paper = "He et al. 2021, https://arxiv.org/abs/2006.03654"
    extrapolation = "clipped"
    relations = (Sequence,)
    offsets_only = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        position_buckets: int | None = 256,
        max_relative_positions: int = 512,
        c2p: bool = True,
        p2c: bool = True,
        share_att_key: bool = False,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        check_size("'deberta' max_relative_positions", max_relative_positions, 1)
        if position_buckets is not None:
            check_size("'deberta' position_buckets", position_buckets, 2)
            if max_relative_positions <= position_buckets // 2 + 1:
                raise ValueError(
                    f"'deberta' has buckets of one distance each up to {position_buckets // 2}, so "
                    f"max_relative_positions must be above {position_buckets // 2 + 1}, got {max_relative_positions}"
                )
        if not (c2p or p2c):
            raise ValueError("'deberta' without c2p and p2c has no terms; ask for one of them, or for 'none'")
        self.position_buckets, self.max_relative_positions = position_buckets, max_relative_positions
        self.c2p, self.p2c, self.share_att_key = c2p, p2c, share_att_key
        self.span = max_relative_positions if position_buckets is None else position_buckets
        dim, own = num_heads * head_dim, not share_att_key
        self.embeddings = self._parameter(2 * self.span, dim)
        self.key_weight = self._parameter(dim, dim) if own and c2p else None
        self.query_weight = self._parameter(dim, dim) if own and p2c else None
        self.query_bias = self._parameter(dim) if own and p2c else None
        self.norm_weight = self._parameter(dim) if share_att_key else None
        self.norm_bias = self._parameter(dim) if share_att_key else None
        self.reset_parameters()

    @property
    def paper_scale(self) -> float:
        """1 / sqrt(D (1 + the number of terms))."""
        return (self.head_dim * (1 + self.c2p + self.p2c)) ** -0.5

    def reset_parameters(self) -> None:
        """Give every parameter its start."""
        super().reset_parameters()
        for bias in (self.query_bias, self.norm_bias):
            if bias is not None:
                nn.init.zeros_(bias)
        if self.norm_weight is not None:
            nn.init.ones_(self.norm_weight)

    def forward(self, index: SequenceIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        span, (n, m) = self.span, index.shape
        # A short sequence, with a bucket for each distance, needs no other embeddings. A length that is left open in
        # export does not tell.
        if index.query_positions is None and not isinstance(n, torch.SymInt) and not isinstance(m, torch.SymInt):
            single = span if self.position_buckets is None else self.position_buckets // 2
            span = max(n, m) if max(n, m) <= single else span
        embeddings = self.embeddings[self.span - span : self.span + span]
        K, Q = self._shared(embeddings, attention) if self.share_att_key else self._projected(embeddings)
        return Terms(K=K, Q=Q, index=index.map(lambda offsets: self._codes(-offsets, span), 2 * span))

    def _codes(self, distances: Tensor, span: int) -> Tensor:
        if self.position_buckets is not None:
            distances = log_buckets(distances, self.position_buckets, self.max_relative_positions)
        return (distances + span).clamp(0, 2 * span - 1)

    def _projected(self, embeddings: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """K and Q, each (H, 2 span, D), or None."""
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        with without_autocast(embeddings):
            K, Q = (
                None if weight is None else nn.functional.linear(embeddings.to(dtype), weight.to(dtype))
                for weight in (self.key_weight, self.query_weight)
            )
        if Q is not None and self.query_bias is not None:
            Q = Q + self.query_bias
        return self._by_head(K), self._by_head(Q)

    def _shared(self, embeddings: Tensor, attention: Any) -> tuple[Tensor | None, Tensor | None]:
        """K and Q, each (H, 2 span, D), or None, by the layer's own projections."""
        if not (hasattr(attention, "q_proj") and hasattr(attention, "k_proj")):
            raise ValueError(
                "'deberta' with share_att_key=True projects its embeddings by the layer's q_proj and k_proj; "
                f"pass attention=, a RelativeAttention; got {type(attention).__name__}"
            )
        dim = embeddings.shape[1:]
        normed = nn.functional.layer_norm(embeddings, dim, self.norm_weight, self.norm_bias, eps=1e-7)
        with without_autocast(embeddings):
            K = attention.k_proj(normed) if self.c2p else None
            Q = attention.q_proj(normed) if self.p2c else None
        return self._by_head(K), self._by_head(Q)

    def _by_head(self, vectors: Tensor | None) -> Tensor | None:
        """(R, Hkv D) as (H, R, D); a key head serves its group of heads."""
        if vectors is None:
            return None
        tables = vectors.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)
        return tables.repeat_interleave(self.num_heads // tables.shape[0], dim=0)

    def zero_(self) -> None:
        """Set the projections to zero, or with `share_att_key`, where they are the layer's, a strength."""
        if self.share_att_key:
            super().zero_()
        for parameter in (self.key_weight, self.query_weight, self.query_bias):
            if parameter is not None:
                nn.init.zeros_(parameter)
