"""The gradients of a plan, from its blocks computed again."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from relbias.attention.blocks.forward import LOG2E, blocks, exp_, fill
from relbias.attention.blocks.plan import Plan, rows_in_order
from relbias.attention.blocks.tile import Tile
from relbias.attention.blocks.work import Work


def backward(
    plan: Plan,
    tensors: Sequence[Tensor],
    out: Tensor,
    lse: Tensor,
    grad: Tensor,
    wanted: Sequence[bool],
    size: int,
) -> list[Tensor | None]:
    """The gradients of a plan's tensors.

    With the weights P = exp(s - lse) and their gradient G_ij = grad_i . (v_j + V[r_ij]) - grad_i . out_i, that
    of the logits is dS = P G. A block needs one
    pass for each of: the bias, exp(s), G, P G, and the sums along the diagonals; the rest is products of matrices.

    Args:
        plan: of the call.
        tensors: that it refers to.
        out: (B, H, N, Dv).
        lse: (B, H, N), as `forward` gives it.
        grad: (B, H, N, Dv), the gradient of the output.
        wanted: which of the tensors' gradients are wanted.
        size: how many logits a block has, about.

    Returns:
        One for each tensor; None where it is not wanted.
    """
    q, k, v = tensors[:3]
    every = list(blocks(plan, tensors, size))
    # Where each block has all queries and keys of its items and heads, it alone writes their gradients.
    whole = slice(0, q.shape[2]), slice(0, k.shape[2])
    once = len(every) > 0 and all((block.rows, block.keys) == whole for block in every)
    # Logits in bits, made of parts in bits, spare a pass before the powers of 2.
    linear = {number for part in plan.parts for number in part.linear or ()}
    unit = 1.0 if any(part.linear is None for part in plan.parts) else LOG2E
    if unit == LOG2E:
        tensors = [x * LOG2E if number in linear else x for number, x in enumerate(tensors)]
        lse = lse * LOG2E
    work = Work(tensors, wanted, 3 if once else 0)
    beta = 0.0 if once else 1.0
    grad = rows_in_order(grad)
    skews = any(part.skews for part in (*plan.parts, *plan.values))
    weights, change = Tile(q, skews), Tile(q, skews)
    values_wanted = any(work.grads[table.rows] is not None for table in plan.values)
    logits_wanted = any(x is not None for number, x in enumerate(work.grads) if number != 2)
    grad_q, grad_k, grad_v = work.grads[:3]
    for block in every:
        at = (block.items, block.heads, block.rows)
        queries, keys = block.of_queries(q), block.of_keys(k)
        fill(plan, work, weights, block, (queries, keys), lse[at], unit)
        if unit == LOG2E:
            weights.flat.exp2_()
        else:
            exp_(weights.flat)
        some = block.of_queries(grad)
        if grad_v is not None:
            block.of_keys(grad_v).baddbmm_(weights.flat.mT, some, beta=beta)
        if values_wanted:
            weights.clear_padding()
            for table in plan.values:
                table.pull(work, weights, block, some, None)
        if not logits_wanted:
            continue
        change.take(block)
        change.values.copy_((grad[at] * out[at]).sum(3, keepdim=True).neg_())
        for table in plan.values:
            table.scores(work, tensors[table.rows], some, change, block, False)
        change.flat.baddbmm_(some, block.of_keys(v).mT)
        if plan.values:
            change.clear_padding()
        change.flat.mul_(weights.flat)
        if grad_q is not None:
            block.of_queries(grad_q).baddbmm_(change.flat, keys, beta=beta, alpha=plan.scale)
        if grad_k is not None:
            block.of_keys(grad_k).baddbmm_(change.flat.mT, queries, beta=beta, alpha=plan.scale)
        for part in plan.parts:
            part.collect(work, change, block)
    for part in plan.parts:
        part.finish(work)
    return work.grads
