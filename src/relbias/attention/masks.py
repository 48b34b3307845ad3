"""Which keys a query may attend to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

Window = tuple[int, int]


@dataclass(frozen=True)
class Masks:
    """All masks of one call of N queries and M keys; the queries are the last N of M positions.

    Args:
        n: N.
        m: M.
        attn_mask: broadcasting to (B, H, N, M); boolean True = may attend, or a float that is added to the logits.
        key_padding_mask: (B, M) bool, True = padding.
        is_causal: hide the keys after the query.
        window: (left, right), in positions: -left <= j - i <= right.
        document_ids: (B, M) integers; a query sees the keys of its own document.
    """

    n: int
    m: int
    attn_mask: Tensor | None = None
    key_padding_mask: Tensor | None = None
    is_causal: bool = False
    window: Window | None = None
    document_ids: Tensor | None = None

    @property
    def empty(self) -> bool:
        """Whether there is no mask at all."""
        given = (self.attn_mask, self.key_padding_mask, self.window, self.document_ids)
        return not self.is_causal and all(mask is None for mask in given)

    @property
    def only_causal(self) -> bool:
        """Whether torch's own causal flag, which is aligned at the top left, or no mask says all."""
        others = (self.attn_mask, self.key_padding_mask, self.window, self.document_ids)
        return all(mask is None for mask in others) and (not self.is_causal or self.n == self.m)

    def allowed(self, rows: slice, device: torch.device) -> Tensor | None:
        """Which keys the queries of some rows may attend to, (B or 1, H or 1, n, M) bool; None for all."""
        parts = []
        if self.attn_mask is not None and self.attn_mask.dtype == torch.bool:
            parts.append(_rows_of(self.attn_mask, rows))
        if self.key_padding_mask is not None:
            parts.append(~self.key_padding_mask[:, None, None, :])
        if self.is_causal or self.window is not None:
            keys = torch.arange(self.m, device=device)
            queries = torch.arange(self.n, device=device)[rows] + (self.m - self.n)
            offsets = keys[None] - queries[:, None]
            if self.is_causal:
                parts.append((offsets <= 0)[None, None])
            if self.window is not None:
                left, right = self.window
                parts.append(((offsets >= -left) & (offsets <= right))[None, None])
        if self.document_ids is not None:
            ids = self.document_ids
            parts.append((ids[:, self.m - self.n :][:, rows, None] == ids[:, None, :])[:, None])
        if not parts:
            return None
        allowed = parts[0]
        for part in parts[1:]:
            allowed = allowed & part
        return allowed

    def visible(self, rows: slice) -> slice:
        """The keys that the causal mask and the window leave to at least one of some rows; the stop may be too low."""
        first, last = rows.start + self.m - self.n, rows.stop - 1 + self.m - self.n
        left, right = (self.m + self.n, self.m + self.n) if self.window is None else self.window
        right = 0 if self.is_causal else right
        return slice(max(0, first - left), min(self.m, last + right + 1))

    def added(self, rows: slice, dtype: torch.dtype) -> Tensor | None:
        """What a float mask adds to the logits of some rows, (B or 1, H or 1, n, M) in a dtype, or None."""
        if self.attn_mask is None or self.attn_mask.dtype == torch.bool:
            return None
        return _rows_of(self.attn_mask, rows).to(dtype)


def _rows_of(mask: Tensor, rows: slice) -> Tensor:
    mask = mask.view(*[1] * (4 - mask.ndim), *mask.shape)
    return mask if mask.shape[2] == 1 else mask[:, :, rows]


def hide(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """The logits with -inf where attention is not allowed."""
    return logits if allowed is None else logits.masked_fill(~allowed, -math.inf)


def empty_rows(logits: Tensor) -> Tensor:
    """Which rows hold nothing but -inf, (..., 1) bool."""
    if logits.shape[-1] == 0:
        return torch.ones(*logits.shape[:-1], 1, dtype=torch.bool, device=logits.device)
    return logits.detach().amax(dim=-1, keepdim=True) == -math.inf  # much faster than (logits == -inf).all()


def safe_softmax(logits: Tensor) -> Tensor:
    """Softmax over the keys; a row of -inf alone gives weights 0 and gradients 0 instead of NaN."""
    hidden = empty_rows(logits)
    return torch.softmax(logits.masked_fill(hidden, 0.0), dim=-1).masked_fill(hidden, 0.0)


def keep_mask(shape: tuple[int, int, int, int], rows: slice, dropout_p: float, device: torch.device) -> Tensor:
    """Which attention weights of some rows dropout keeps.

    Args:
        shape: (B, H, N, M) of all weights.
        rows: the queries asked for, n of N.
        dropout_p: the probability of dropping one.
        device: where to draw.

    Returns:
        (B, H, n, M) bool.
    """
    batch, heads, n, m = shape
    drawn = torch.empty(batch, heads, len(range(n)[rows]), m, dtype=torch.bool, device=device)
    return torch.bernoulli(drawn, 1.0 - dropout_p)  # on CPU torch's own dropout draws the same


def drop(weights: Tensor, n: int, rows: slice, dropout_p: float) -> Tensor:
    """Attention weights of some of N rows with dropout."""
    if dropout_p == 0.0:
        return weights
    batch, heads, _, m = weights.shape
    keep = keep_mask((batch, heads, n, m), rows, dropout_p, weights.device)
    return weights.masked_fill(~keep, 0.0) * (1.0 / (1.0 - dropout_p) if dropout_p < 1.0 else 0.0)
