"""The output of a plan, and the logarithms of its sums of exponentials, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from relbias.attention.blocks.diagonals import DiagonalBias
from relbias.attention.blocks.plan import Plan
from relbias.attention.blocks.tile import Block, Tile, groups, row_blocks
from relbias.attention.blocks.work import Work

LOG2E = math.log2(math.e)
_fused: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_ROWS_OF_MASK = 512
"""At most, in a block of the mask that torch's kernel gets: more cost it less, but products with diagonals more."""
_QUERIES = 128
"""At once, where each block of queries sees keys of its own."""


def blocks(
    plan: Plan, tensors: Sequence[Tensor], size: int, most: int = 256, items_together: bool = False
) -> Iterator[Block]:
    """The blocks of a plan with about `size` logits each: some queries, and for these all heads and items."""
    batch, heads, n, _ = tensors[0].shape
    m = tensors[1].shape[2]
    rows_at_once = max(1, min(n, most, size // m))
    visible = ((rows, plan.masks.visible(rows)) for rows in row_blocks(n, rows_at_once))
    parts = [(rows, keys) for rows, keys in visible if keys.stop > keys.start]
    together = 1 if items_together else batch
    pairs = list(groups(together, heads, max(1, size // 4 // (rows_at_once * m))))
    if plan.by_heads:
        yield from (Block(*pair, *part) for pair in pairs for part in parts)
    else:
        yield from (Block(*pair, *part) for part in parts for pair in pairs)


def fill(
    plan: Plan,
    work: Work,
    tile: Tile,
    block: Block,
    vectors: tuple[Tensor, Tensor] | None,
    less: Tensor | None = None,
    unit: float = 1.0,
) -> None:
    """Write a block of logits.

    Args:
        plan: of the call.
        work: the pass.
        tile: becomes the block.
        block: the block.
        vectors: (B' H', n, D) and (B' H', m, D), whose product, times the scale of the plan, is part of the logits;
            without it only the parts are.
        less: (B', H', n), what is taken from every logit of a query.
        unit: a factor of the product, for parts and `less` that have it already.
    """
    tile.take(block)
    blank = True
    parts = list(plan.parts)
    if less is not None:
        # Written together with the first part, where that is possible, so that it is free.
        first = parts[0] if parts else None
        if isinstance(first, DiagonalBias):
            parts.pop(0)
            first.write(work, tile, block, less[..., None])
        elif first is not None and (values := first.alone(work, block)) is not None:
            parts.pop(0)
            torch.sub(values.expand(block.shape), less[..., None], out=tile.values)
        else:
            tile.values.copy_(-less[..., None])
        blank = False
    while parts and parts[0].skews:
        parts.pop(0).add(work, tile, block, blank)
        blank = False
    if vectors is not None:
        x, y = vectors
        torch.baddbmm(tile.flat, x, y.mT, beta=0 if blank else 1, alpha=plan.scale * unit, out=tile.flat)
        blank = False
    for part in parts:
        part.add(work, tile, block, blank)
        blank = False


def exp_(x: Tensor) -> None:
    """The exponential, in place. torch.exp takes ten times longer where its results are tiny, and twice for -inf."""
    x.mul_(LOG2E).exp2_()


def forward(plan: Plan, tensors: Sequence[Tensor], size: int) -> tuple[Tensor, Tensor]:
    """The output of a plan.

    Args:
        plan: of the call.
        tensors: that it refers to.
        size: how many logits a block has, about.

    Returns:
        (B, H, N, Dv), and the logarithm of each query's sum of exponentials, (B, H, N); 0 for an empty row.
    """
    q, _, v = tensors[:3]
    if plan.values or _fused is None or q.device.type != "cpu" or q.shape[3] != v.shape[3]:
        return _by_softmax(plan, tensors, size)
    if all(isinstance(part, DiagonalBias) for part in plan.parts):
        return _by_diagonals(plan, tensors)
    return _by_masks(plan, tensors, size)


def _by_diagonals(plan: Plan, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """One call of torch's kernel, or one for some queries, whose mask is a view of the N + M - 1 numbers.

    The kernel is given the queries in the opposite order: the rows of the mask are then overlapping windows of the
    numbers, each a place after the one before, and strides can say so.
    """
    q, k, v = tensors[:3]
    if not plan.parts:
        return _fused(q, k, v, 0.0, False, scale=plan.scale)
    n = q.shape[2]
    values = tensors[plan.parts[0].values].contiguous()  # ty: ignore[missing-attribute]
    backwards = q.flip(2)
    pieces = list(row_blocks(n, _QUERIES))
    if not plan.masks.is_causal and plan.masks.window is None:
        # The kernel multiplies a query that is left over alone in another way. So that nothing to add adds nothing, to
        # the bit, it stays the last one.
        pieces = [slice(0, n - 1), slice(n - 1, n)] if n > 1 and n % 32 == 1 else [slice(0, n)]

    def piece(rows: slice, keys: slice) -> tuple[Tensor, Tensor]:
        shape = (*values.shape[:2], rows.stop - rows.start, keys.stop - keys.start)
        start = values.storage_offset() + n - rows.stop + keys.start
        mask = values.as_strided(shape, (*values.stride()[:2], 1, 1), start)
        some = backwards[:, :, n - rows.stop : n - rows.start]
        out, lse = _fused(some, k[:, :, keys], v[:, :, keys], 0.0, False, attn_mask=mask, scale=plan.scale)
        return out.flip(2), lse.flip(2)

    if len(pieces) == 1:
        keys = plan.masks.visible(pieces[0])
        if keys == slice(0, k.shape[2]):
            return piece(pieces[0], keys)
    out, lse = q.new_zeros(q.shape), q.new_zeros(q.shape[:3])
    for rows in pieces:
        keys = plan.masks.visible(rows)
        if keys.stop > keys.start:
            out[:, :, rows], lse[:, :, rows] = piece(rows, keys)
    return out, lse


def _by_masks(plan: Plan, tensors: Sequence[Tensor], size: int) -> tuple[Tensor, Tensor]:
    """The kernel of torch for one block after the other, with all parts as its mask."""
    q, k, v = tensors[:3]
    work = Work(tensors)
    tile = Tile(q, any(part.skews for part in plan.parts))
    together = not any(part.per_item(work) for part in plan.parts)
    every = list(blocks(plan, tensors, size, _ROWS_OF_MASK, together))
    if len(every) == 1 and (every[0].rows, every[0].keys) == (slice(0, q.shape[2]), slice(0, k.shape[2])):
        return _fused(q, k, v, 0.0, False, attn_mask=_mask(plan, work, tile, every[0]), scale=plan.scale)
    out, lse = q.new_zeros(q.shape), q.new_zeros(q.shape[:3])
    for block in every:
        mask = _mask(plan, work, tile, block)
        items = slice(None) if together else block.items
        at, of = (items, block.heads, block.rows), (items, block.heads, block.keys)
        out[at], lse[at] = _fused(q[at], k[of], v[of], 0.0, False, attn_mask=mask, scale=plan.scale)
    return out, lse


def _mask(plan: Plan, work: Work, tile: Tile, block: Block) -> Tensor:
    """The sum of the parts, (B' or 1, H' or 1, n, m): in the tile, if there is more than one."""
    alone = plan.parts[0].alone(work, block) if len(plan.parts) == 1 else None
    if (
        alone is not None and alone.shape[2:] == block.shape[2:] and alone.stride(-1) == 1
    ):  # else torch's kernel reads other numbers
        return alone
    fill(plan, work, tile, block, None)
    return tile.values


def _by_softmax(plan: Plan, tensors: Sequence[Tensor], size: int) -> tuple[Tensor, Tensor]:
    """The weights of one block after the other, which values by code need."""
    q, k, v = tensors[:3]
    work = Work(tensors)
    out, lse = q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(q.shape[:3])
    tile = Tile(q, any(part.skews for part in (*plan.parts, *plan.values)))
    for block in blocks(plan, tensors, size):
        fill(plan, work, tile, block, (block.of_queries(q), block.of_keys(k)))
        largest = tile.flat.amax(-1)
        largest.masked_fill_(largest == -math.inf, 0.0)
        exp_(tile.flat.sub_(largest[..., None]))
        total = tile.flat.sum(-1)
        empty = total == 0
        total.masked_fill_(empty, 1.0)
        target = block.of_queries(out)
        target.baddbmm_(tile.flat, block.of_keys(v))
        if plan.values:
            tile.clear_padding()
            for table in plan.values:
                table.pull(work, tile, block, None, target)
        target.div_(total[..., None])
        block.of_queries(lse).copy_(largest.add_(total.log()))
    return out, lse
