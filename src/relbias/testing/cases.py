"""The calls of attention that every encoding must pass in every implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BATCH, HEADS, HEAD_DIM = 2, 4, 16


@dataclass(frozen=True)
class Case:
    """One kind of call.

    Args:
        name: what is special about it.
        n: N, the number of queries; a grid has its own.
        m: M, the number of keys; a grid has its own.
        dtype: of q, k, v and the encoding.
        kv_heads: Hkv.
        contiguous: whether q, k and v are contiguous.
        autocast: whether the call is made in float32 under bfloat16 autocast.
    """

    name: str
    n: int = 11
    m: int = 11
    dtype: torch.dtype = torch.float64
    kv_heads: int = HEADS
    contiguous: bool = True
    autocast: bool = False

    @property
    def low_precision(self) -> torch.dtype | None:
        """The half precision in which the call is computed, if it is."""
        if self.autocast:
            return torch.bfloat16
        return self.dtype if self.dtype in (torch.float16, torch.bfloat16) else None

    def inputs(self, n: int, m: int) -> list[Tensor]:
        """q, k, v and a gradient of the output, random, in float64 rounded to the case's dtype."""
        sizes = [(HEADS, n), (self.kv_heads, m), (self.kv_heads, m), (HEADS, n)]
        tensors = []
        for heads, tokens in sizes:
            if self.contiguous:
                x = torch.randn(BATCH, heads, tokens, HEAD_DIM, dtype=torch.float64)
            else:
                x = torch.randn(BATCH, tokens, heads, 2 * HEAD_DIM, dtype=torch.float64).transpose(1, 2)[..., ::2]
            tensors.append(x.to(self.low_precision or self.dtype).double())
        return tensors

    def arguments(self, n: int, m: int) -> dict[str, Any]:
        """The masks of the call."""
        if self.name in ("causal", "half precision", "autocast", "grouped heads", "q_len != k_len"):
            return {"is_causal": True}
        if self.name == "padding":
            padding = torch.zeros(BATCH, m, dtype=torch.bool)
            padding[0, m // 2 :] = True  # right padding
            padding[1, : m // 3] = True  # left padding
            return {"key_padding_mask": padding}
        if self.name == "empty row":
            allowed = torch.ones(BATCH, 1, n, m, dtype=torch.bool)
            allowed[0, :, 0] = False
            padding = torch.zeros(BATCH, m, dtype=torch.bool)
            padding[1] = True
            return {"attn_mask": allowed, "key_padding_mask": padding}
        if self.name == "window":
            return {"window": (3, 1)}
        if self.name == "documents":
            return {"document_ids": torch.arange(m).expand(BATCH, m) // 4, "is_causal": True}
        return {}


CASES = (
    Case("causal"),
    Case("padding"),
    Case("q_len != k_len", n=5, m=11),
    Case("one token", n=1, m=1),
    Case("no token", n=0, m=0),
    Case("empty row"),
    Case("half precision", dtype=torch.float16),
    Case("autocast", dtype=torch.float32, autocast=True),
    Case("non-contiguous", contiguous=False),
    Case("grouped heads", kv_heads=2),
    Case("window", n=9, m=14),
    Case("documents", n=7, m=12),
)
