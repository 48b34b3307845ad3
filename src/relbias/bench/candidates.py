"""One way to compute a problem, and the exact result that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DIRECTIONS = ("forward", "forward + backward")


@dataclass(frozen=True)
class Exact:
    """The result of the reference in float64.

    Args:
        queries: the last queries, whose output is compared; the gradients are those of their output alone.
        out: (..., queries, D).
        grads: of what a candidate's `wanted` holds.
    """

    queries: int
    out: Tensor
    grads: tuple[Tensor, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to compute a problem.

    Args:
        name: in the table.
        call: computes the output, (..., N, D), the encoding's terms included.
        wanted: what gets gradients.
        grad: the gradient of the output, of its shape.
        exact: makes the exact result; None where there is nothing to compare with.
        directions: those that it is measured in.
        refusal: why a call cannot be computed, None where it can; asked with gradients on for the backward pass.
    """

    name: str
    call: Callable[[], Tensor]
    wanted: Sequence[Tensor]
    grad: Tensor
    exact: Callable[[], Exact] | None = None
    directions: tuple[str, ...] = DIRECTIONS
    refusal: Callable[[], str | None] = lambda: None

    def run(self, direction: str) -> None:
        """Compute the output, or the output and all gradients."""
        if direction == DIRECTIONS[0]:
            with torch.no_grad():
                self.call()
        else:
            self._gradients(self.call(), self.grad)

    def refused(self, direction: str) -> str | None:
        """Why it cannot compute a direction; None if it can."""
        with torch.set_grad_enabled(direction != DIRECTIONS[0]):
            return self.refusal()

    def error(self, direction: str) -> float | None:
        """The largest error of the output, or forward and backward also of the gradients; None without an exact result.

        Its unit is the largest number of the tensor that it is in, but for a gradient at least a thousandth of the
        largest of all gradients: that of a layer's key bias is 0, and what is computed is nothing but rounding.
        """
        if self.exact is None:
            return None
        exact = self.exact()
        others = self.grad.shape[-2] - exact.queries
        if direction == DIRECTIONS[0]:
            with torch.no_grad():
                return _relative(self.call()[..., others:, :], exact.out, 0.0)
        grad = self.grad.clone()
        grad[..., :others, :] = 0.0
        out = self.call()
        least = 1e-3 * max(float(gradient.abs().amax()) for gradient in exact.grads)
        pairs = zip(self._gradients(out, grad), exact.grads, strict=True)
        return max(_relative(out[..., others:, :], exact.out, 0.0), *(_relative(*pair, least) for pair in pairs))

    def _gradients(self, out: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        # A parameter that takes no part, such as a learned scale of another attention, gets zeros.
        return torch.autograd.grad(out, list(self.wanted), grad, allow_unused=True, materialize_grads=True)


def _relative(mine: Tensor, exact: Tensor, least: float) -> float:
    error, size = float((mine.detach().double() - exact).abs().amax()), max(float(exact.abs().amax()), least)
    return error / size if size > 0.0 else error
