"""Attention by blocks as one operation for autograd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from relbias.attention.blocks.backward import backward
from relbias.attention.blocks.forward import forward
from relbias.attention.blocks.plan import Plan


def _given(x: object) -> Iterator[Tensor]:
    """The tensors that a plan holds: masks, and what codes are made from."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, tuple):
        for part in x:
            yield from _given(part)
    elif is_dataclass(x):
        for field in fields(x):
            yield from _given(getattr(x, field.name))


def _versions(plan: Plan) -> list[int]:
    """How often each of them was changed in place; tensors of the inference mode do not count it."""
    return [x._version for x in _given(plan) if not x.is_inference()]


class BlockwiseFunction(torch.autograd.Function):
    """Keeps the tensors, the output and a number for each query; the backward pass computes the rest again."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, size: int, *tensors: Tensor) -> Tensor:
        out, lse = forward(plan, tensors, size)
        ctx.plan, ctx.size, ctx.versions = plan, size, _versions(plan)
        ctx.save_for_backward(*tensors, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # a penalty on a gradient would have no gradient, in silence
            raise RuntimeError(
                "implementation='blockwise' cannot be differentiated twice; use 'reference', or leave out create_graph"
            )
        if _versions(ctx.plan) != ctx.versions:  # they are read again, and would give other weights, in silence
            raise RuntimeError(
                "a mask, or the codes of a relation, were changed in place before the backward pass of "
                "implementation='blockwise', which reads them again; change a clone"
            )
        *tensors, out, lse = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):
            grads = backward(ctx.plan, tensors, out, lse, grad, ctx.needs_input_grad[2:], ctx.size)
        return None, None, *grads
