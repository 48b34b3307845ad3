"""How an implementation not written here is compared with ours: outputs, and gradients of everything that has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}


@pytest.fixture(params=TOLERANCES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(params=["reference", "folded", "blockwise"])
def implementation(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """Compares (output, tensors) of two sides; `maps` brings their gradients into our layout, tensor by tensor.

    A logit of size s is rounded to s units in the last place, and its weight by as much: `logits` is that size where it
    is far beyond 1.
    """

    def compare(
        ours: tuple[Tensor, Sequence[Tensor]],
        theirs: tuple[Tensor, Sequence[Tensor]],
        maps: Sequence[Callable[[Tensor], Tensor]] | None = None,
        logits: float = 1.0,
    ) -> None:
        (our_output, our_tensors), (their_output, their_tensors) = ours, theirs
        assert our_output.shape == their_output.shape
        assert our_output.dtype == their_output.dtype
        cotangent = torch.randn(our_output.shape, generator=torch.Generator().manual_seed(1)).to(our_output.dtype)
        our_gradients = torch.autograd.grad(our_output, our_tensors, cotangent)
        their_gradients = torch.autograd.grad(their_output, their_tensors, cotangent)
        _close(our_output, their_output, "the output")
        for number, (our, their) in enumerate(zip(our_gradients, their_gradients, strict=True)):
            their = maps[number](their) if maps else their
            assert their.abs().max() > 1e-4, f"gradient {number} is zero, so it shows nothing"
            _close(our, their, f"gradient {number}", logits * torch.finfo(their.dtype).eps)

    return compare


def _close(ours: Tensor, theirs: Tensor, what: str, rounded: float = 0.0) -> None:
    assert ours.shape == theirs.shape, f"{what} has shape {tuple(ours.shape)}, expected {tuple(theirs.shape)}"
    tolerance = max(TOLERANCES[theirs.dtype], rounded) * max(1.0, float(theirs.detach().abs().max()))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=tolerance, msg=lambda text: f"{what}: {text}")


@pytest.fixture
def copy_linear() -> Callable[..., None]:
    """Copies weight rows, and a bias or zeros, into a linear layer."""

    def copy(layer: nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
        with torch.no_grad():
            layer.weight.copy_(weight)
            if layer.bias is not None:
                layer.bias.zero_() if bias is None else layer.bias.copy_(bias)

    return copy
