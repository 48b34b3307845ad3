"""What an implementation of the equation is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from relbias.attention.call import Call
from relbias.terms import Terms


class Implementation(ABC):
    """A way to compute the equation. It knows terms and masks, never an encoding's name."""

    name: ClassVar[str]
    compiles: ClassVar[bool] = False
    """Whether a call compiles, which "auto" never does."""

    def supports(self, q: Tensor, k: Tensor, v: Tensor, terms: Terms | None = None, **arguments: Any) -> str | None:
        """Why a call cannot be computed this way; None if it can.

        Args:
            q: (B, H, N, D).
            k: (B, Hkv, M, D).
            v: (B, Hkv, M, D).
            terms: what the relations add.
            **arguments: the others of `relative_attention`, but `implementation`.
        """
        return self.refusal(Call.of(q, k, v, terms, **arguments))

    @abstractmethod
    def refusal(self, call: Call) -> str | None:
        """Why a call cannot be computed this way; None if it can."""

    @abstractmethod
    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """The output, (B, H, N, D), and the weights, (B, H, N, M), if they are asked for."""


def known_to_be(condition: Any) -> bool:
    """The condition; False where it depends on a size that is left open in compilation or export."""
    if not torch.compiler.is_compiling():
        return bool(condition)
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def in_transform() -> bool:
    """Whether torch.func differentiates or maps this call, outside of compilation."""
    return not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None
