"""Calls of attention that every test here draws from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import relbias as rb
from relbias.attention import blockwise
from relbias.attention.blocks import plain


@pytest.fixture(params=["reference", "folded", "blockwise"])
def implementation(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes blockwise take few queries at a time, so that several blocks are joined."""
    monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 10)
    monkeypatch.setattr(plain, "_LOGITS_PER_BLOCK", 48)


@pytest.fixture
def draw() -> Callable[..., Tensor]:
    """Draws the next tensor of a fixed stream."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    return tensor


@pytest.fixture
def qkv(draw: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """Draws q with 4 heads, and k and v with 2, of size 8, for 2 items."""

    def make(n: int, m: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        return [draw(2, heads, tokens, 8, dtype=dtype) for heads, tokens in ((4, n), (2, m), (2, m))]

    return make


@pytest.fixture
def outcome() -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Computes attention, and the gradients of given tensors under a fixed cotangent."""

    def compute(tensors: Sequence[Tensor], *args, **arguments) -> tuple[Tensor, list[Tensor]]:
        out = rb.relative_attention(*args, **arguments)
        cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        grads = torch.autograd.grad(out, tensors, cotangent.to(out.dtype), allow_unused=True)
        return out, [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, grads, strict=True)]

    return compute
