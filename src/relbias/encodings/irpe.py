"""iRPE's piecewise buckets of two-dimensional offsets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from relbias.encodings import piecewise
from relbias.encodings.base import Encoding
from relbias.relations import Grid, GridIndex, Index, Relation
from relbias.relations.base import check_number
from relbias.terms import Entry, Terms

Method = Literal["euclidean", "quantization", "cross", "product"]
Mode = Literal["contextual", "bias"]


class IRPE(Encoding):
    """Vectors or biases over piecewise buckets of the offset on a grid (https://arxiv.org/abs/2107.14222).

    A bucket r of the offset (dy, dx) is made with the function g of :func:`piecewise_index`, and for

    - "product" it is the pair (g(dy), g(dx)): 49 buckets at the default ratio;
    - "cross" there are two relations, g(dy) and g(dx), each with tables of its own, whose terms add up;
    - "euclidean" it is g of ||(dy, dx)|| rounded to whole patches;
    - "quantization" it is g of dy^2 + dx^2, as in the authors' code. (The paper moreover numbers the distances that
      occur before it applies g; the code has a function for that and never calls it.)

    All pairs with a prefix token share one more bucket. Of the letters of `rpe_on` "k" adds c q_i . K[r_ij] to the
    logits, "q" adds c k_j . Q[r_ji], with the bucket of the opposite offset, and "v" adds V[r_ij] to the values. (The
    authors multiply q by c before all else, and k by c for Q alone, which is the same.) In the mode "bias" a bucket
    has a number, which is added to the logits and not scaled by c.

    Args:
        num_heads: H.
        head_dim: D.
        relation: a Grid, of which calls may have any size.
        method: how offsets are put into buckets.
        mode: whether the tables hold vectors, "contextual", or numbers, "bias".
        rpe_on: one or more of the letters k, q and v; a bias goes on k and q alone.
        shared_head: whether the tables are shared by all heads.
        ratio: of g; larger for more buckets.
        strength: the start of a learned factor per head, or None for no factor.
        device: where parameters lie.
        dtype: of the parameters.

    Attributes:
        keys: (T, H or 1, R, D), in the mode "bias" (T, H or 1, R), or None; T is 2 for "cross" (dy, dx), else 1. R
            counts the prefix tokens' bucket, the last, where there are any; for "euclidean" and "quantization", whose
            g is never negative, the authors' tables have floor(2 ratio) more rows first, which are never read.
            Drawn with a standard deviation of 0.02.
        queries: likewise.
        values: (T, H or 1, R, D), likewise, or None.

    Raises:
        ValueError: there is no such method, mode or letter, a bias on v, or `ratio` is less than 0.5.

    Example:
        >>> encoding = IRPE(num_heads=6, head_dim=64, relation=Grid(14, 14, prefix_tokens=1), rpe_on="qk")
        >>> encoding.keys.shape
        torch.Size([1, 1, 50, 64])
        >>> encoding(Grid(14, 14, prefix_tokens=1)()).names
        ('K', 'Q')
    """

    name = "irpe"
    formula = "K[g(dy), g(dx)], Q, V or b likewise, g a piecewise logarithmic bucket"
    paper = "Wu et al. 2021, https://arxiv.org/abs/2107.14222"
    extrapolation = "clipped"
    relations = (Grid,)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        relation: Relation | None = None,
        *,
        method: Method = "product",
        mode: Mode = "contextual",
        rpe_on: str = "k",
        shared_head: bool = True,
        ratio: float = 1.9,
        strength: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, head_dim, relation, strength=strength, device=device, dtype=dtype)
        for what, value, known in (("method", method, get_args(Method)), ("mode", mode, get_args(Mode))):
            if value not in known:
                raise ValueError(f"'irpe' has the {what}s {', '.join(known)}; got {value!r}")
        if not rpe_on or not isinstance(rpe_on, str) or set(rpe_on) - set("kqv") or len(set(rpe_on)) < len(rpe_on):
            raise ValueError(f"'irpe' is on one or more of k, q and v, as in \"qk\"; got {rpe_on!r}")
        if mode == "bias" and "v" in rpe_on:
            raise ValueError(
                f"'irpe' has no bias on v, which adds vectors to values; got rpe_on={rpe_on!r} with mode='bias'"
            )
        check_number("'irpe' ratio", ratio, 0.5)  # below it all is one bucket
        self.method, self.mode, self.rpe_on, self.ratio = method, mode, rpe_on, ratio
        largest = int(2 * ratio)
        self._buckets = {
            "euclidean": [(piecewise.euclidean_index, largest + 1)],
            "quantization": [(piecewise.quantization_index, largest + 1)],
            "cross": [(piecewise.rows_index, 2 * largest + 1), (piecewise.columns_index, 2 * largest + 1)],
            "product": [(piecewise.product_index, (2 * largest + 1) ** 2)],
        }[method]
        rows = self._buckets[0][1] + (self.relation.prefix_tokens > 0)
        shape = (len(self._buckets), 1 if shared_head else num_heads, rows)
        shape = (*shape, head_dim) if mode == "contextual" else shape
        self.keys = self._parameter(*shape) if "k" in rpe_on else None
        self.queries = self._parameter(*shape) if "q" in rpe_on else None
        self.values = self._parameter(*shape) if "v" in rpe_on else None
        self.reset_parameters()

    def forward(self, index: GridIndex, *, x: Tensor | None = None, attention: nn.Module | None = None) -> Terms:
        return Terms.of(*self._entries(index))

    def _entries(self, index: GridIndex) -> Iterator[Entry]:
        """The entries of each relation: one at r_ij, and one at r_ji for the table on queries."""
        for t, (function, num_buckets) in enumerate(self._buckets):
            codes: Index = index.map(partial(function, ratio=self.ratio), num_buckets, one_prefix_code=True)
            keys, queries, values = (
                None if table is None else table[t] for table in (self.keys, self.queries, self.values)
            )
            if self.mode == "bias":
                if keys is not None:
                    yield Entry(b=keys, index=codes)
                if queries is not None:
                    yield Entry(b=queries, index=codes.T)
                continue
            if keys is not None or values is not None:
                yield Entry(K=keys, V=values, index=codes)
            if queries is not None:
                yield Entry(Q=queries, index=codes.T)

    def zero_(self) -> None:
        """Set the tables to zero."""
        for table in (self.keys, self.queries, self.values):
            if table is not None:
                nn.init.zeros_(table)
