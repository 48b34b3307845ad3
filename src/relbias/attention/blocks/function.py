"""Attention by blocks as one operation for autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relbias.attention.blocks.backward import backward
from relbias.attention.blocks.forward import forward
from relbias.attention.blocks.plan import Plan


class BlockwiseFunction(torch.autograd.Function):
    """Keeps the tensors, the output and a number for each query; the backward pass computes the rest again."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, size: int, *tensors: Tensor) -> Tensor:
        out, lse = forward(plan, tensors, size)
        ctx.plan, ctx.size = plan, size
        ctx.save_for_backward(*tensors, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # a penalty on a gradient would have no gradient, in silence
            raise RuntimeError(
                "implementation='blockwise' cannot be differentiated twice; use 'reference', or leave out create_graph"
            )
        *tensors, out, lse = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):
            grads = backward(ctx.plan, tensors, out, lse, grad, ctx.needs_input_grad[2:], ctx.size)
        return None, None, *grads
