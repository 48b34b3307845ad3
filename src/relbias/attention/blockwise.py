"""A block of logits at a time, recomputed in the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from relbias.attention.blocks.forward import forward
from relbias.attention.blocks.function import BlockwiseFunction
from relbias.attention.blocks.plain import attend_plainly
from relbias.attention.blocks.plan import plan_call, unplanned
from relbias.attention.call import Call
from relbias.attention.implementation import Implementation, in_transform

_LOGITS_PER_BLOCK = 2**20
"""About how many logits a block has at most: 4 MiB in float32."""


class Blockwise(Implementation):
    """The exact softmax of a block of queries over all keys, one block after the other.

    The backward pass computes each block again, so that a block's n x M part is the largest thing in memory, in
    training too (under torch.func every block is kept). In a compiled or exported graph with open sizes all queries are
    one block. It cannot be differentiated twice. Half precision is computed
    in float32.

    A bias that is a function of the diagonal is read from N + M - 1 numbers and its gradient summed along the
    diagonals; the products of q with K, and of the weights with V, are products of matrices over diagonals as well.
    Codes without such a structure are gathered and scattered. A bias that is a function of the rows, a gated matrix
    and dropout, and whatever is compiled, exported or transformed by torch.func, goes block by block through autograd.
    """

    name = "blockwise"

    def refusal(self, call: Call) -> str | None:
        if call.return_weights:
            return "the weights of all queries are never in memory together"
        return None

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        dtype = call.q.dtype
        call = call.converted(call.dtype).with_normalized().with_all_heads()
        if not has_own_backward(call):
            return attend_plainly(call).to(dtype), None
        plan, tensors = plan_call(call)
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return BlockwiseFunction.apply(plan, _LOGITS_PER_BLOCK, *tensors).to(dtype), None
        return forward(plan, tensors, _LOGITS_PER_BLOCK)[0].to(dtype), None


def has_own_backward(call: Call) -> bool:
    """Whether a call is computed by the function of our own, and not block by block through autograd."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or in_transform() or call.q.device.type == "meta":
        return False
    return 0 not in (*call.q.shape, *call.k.shape, call.v.shape[3]) and not unplanned(call)
