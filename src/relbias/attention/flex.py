"""Terms as functions of the score, compiled into one kernel by torch's FlexAttention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from relbias.attention.call import Call
from relbias.attention.flex_mask import block_mask
from relbias.attention.implementation import Implementation
from relbias.relations.base import ALL_ROWS
from relbias.relations.kept import read_codes
from relbias.terms import Entry

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Read = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A number for the batch item, head, query and key that are given."""

_KERNELS = 1024
"""How many kernels may be compiled, one for each combination of terms and masks; torch's own limits are 8 and 256."""


class Flex(Implementation):
    """FlexAttention (https://arxiv.org/abs/2412.05496): what is added to a score is read where the score is computed.

    Of a table over offsets N + M - 1 numbers per head are read, of K and Q their products with the queries and keys,
    (B, H, N, R). Codes without such a structure are N M integers, for all heads together where they agree, and a bias
    that is given or a function is N M numbers per head, as in a mask. Causal masks, windows, padding, documents and
    boolean masks leave out whole blocks of keys.

    It trains on GPUs and infers on CPUs. The first call of each combination of terms and masks compiles, which takes
    seconds, and on CPU that of each length; other values do not. Trained tensors are summed with atomics: their
    gradients may differ in the last digits from run to run.
    """

    name = "flex"
    compiles = True

    def refusal(self, call: Call) -> str | None:
        device, dtype = call.q.device.type, call.q.dtype
        if "V" in call.terms.names:
            return "the term V acts on the values and is no function of a score"
        if call.return_weights:
            return "FlexAttention does not return weights"
        if call.dropout_p > 0.0:
            return "FlexAttention has no dropout"
        if device not in ("cpu", "cuda"):
            return f"FlexAttention is used on CPU and CUDA, and q is on {device}"
        if dtype not in (torch.float32, torch.bfloat16, torch.float16):
            return (
                f"FlexAttention computes in float32, bfloat16 and float16, and q is {str(dtype).removeprefix('torch.')}"
            )
        if device == "cuda" and min(call.q.shape[3], call.v.shape[3]) < 16:
            return f"FlexAttention needs heads of at least 16 on CUDA, and those of q are {call.q.shape[3]}"
        if device == "cpu" and torch.is_grad_enabled() and _may_need_gradients(call):
            return "FlexAttention has no backward pass on CPU; call it under torch.no_grad()"
        return None

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        dtype = call.q.dtype
        call = call.with_normalized().with_all_heads()
        if 0 in (call.masks.n, call.masks.m, call.q.shape[0]):
            return (call.q @ call.k.mT @ call.v).to(dtype), None
        reads = _reads(call)
        q, k = call.rotated()
        scale = call.scale
        if isinstance(scale, Tensor):
            q, scale = (q * call.factor()).to(q.dtype), 1.0
        v, device = call.v, q.device.type
        if device == "cpu":
            # Nothing asks for a gradient here, and FlexAttention refuses tensors that could have one.
            q, k, v = q.detach(), k.detach(), v.detach()
        return _kernel(device)(q, k, v, score_mod=_sum(reads), block_mask=block_mask(call), scale=scale), None


def _may_need_gradients(call: Call) -> bool:
    tensors = [call.q, call.k, call.v]
    for entry in call.terms.entries:
        values = (entry.b, entry.K, entry.Q, entry.u, entry.w, entry.g)
        if any(callable(value) and not isinstance(value, Tensor) for value in values):
            return True  # whether a function's result needs one is not known before it is called
        tensors += [value for value in values if isinstance(value, Tensor)]
        if entry.rotation is not None:
            turning = (entry.rotation.q_angles, entry.rotation.k_angles, entry.rotation.factor)
            tensors += [value for value in turning if isinstance(value, Tensor)]
    return any(tensor.requires_grad for tensor in tensors)


def _kernel(device: str) -> Callable[..., Tensor]:
    """FlexAttention, compiled; within a compiled function it is compiled with it."""
    return flex_attention if torch.compiler.is_compiling() else functools.partial(_compiled, device)


@functools.cache
def _compile(device: str) -> Callable[..., Any]:
    # On CPU some kernels for lengths that are left open do not compile (torch 2.14), so that each has its own.
    return torch.compile(flex_attention, fullgraph=True, dynamic=False if device == "cpu" else None)


def _compiled(device: str, *args: Any, **kwargs: Any) -> Tensor:
    limits = {"recompile_limit": _KERNELS, "accumulated_recompile_limit": _KERNELS}
    with torch._dynamo.config.patch(limits):
        return _compile(device)(*args, **kwargs)


def _sum(reads: Sequence[Read]) -> ScoreMod | None:
    if not reads:
        return None

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        for read in reads:
            score = score + read(batch, head, query, key)
        return score

    return score_mod


def _reads(call: Call) -> list[Read]:
    """What is added to a score: the terms, and a floating mask."""
    seen: set[int] = set()
    reads: list[Read] = []
    factor, n = call.factor(), call.masks.n
    q, k = (x.to(call.dtype) for x in (call.q, call.k))
    for entry in call.terms.entries:
        if entry.u is not None:
            reads.append(_at((k @ entry.u.to(call.dtype)[..., None])[..., 0][:, :, None] * factor, seen))
        if entry.K is not None:
            queries = q if entry.w is None else q + entry.w.to(call.dtype)[:, None]
            reads.append(_product((queries * factor) @ entry.K.to(call.dtype).mT, _code(entry, n, q.device), True))
        if entry.Q is not None:
            reads.append(_product((k * factor) @ entry.Q.to(call.dtype).mT, _code(entry, n, q.device), False))
        if entry.b is not None:
            bias = _bias(call, entry, seen)
            reads.append(bias if entry.g is None else _gated(bias, _at(entry.g.to(call.dtype)[..., None], seen)))
    added = call.masks.added(ALL_ROWS, call.dtype)
    if added is not None:
        reads.append(_at(added, seen))
    return reads


def _bias(call: Call, entry: Entry, seen: set[int]) -> Read:
    """b(i, j)."""
    b, index = entry.b, entry.index
    if b is None:
        raise TypeError("there is no b")
    if not isinstance(b, Tensor):
        return _at(b(ALL_ROWS).to(call.dtype), seen)
    b = b.to(call.dtype)
    if index is None:
        return _at(b.view(*[1] * (4 - b.ndim), *b.shape), seen)
    b = b if b.ndim == 3 else b[None]
    diagonals = index.diagonals(b.device)
    if diagonals is not None:
        return _table(b.index_select(-1, diagonals), _offset(call.masks.n, b.device))
    return _table(b, _code(entry, call.masks.n, b.device))


def _offset(n: int, device: torch.device) -> Read:
    """The number of a diagonal, j - i + N - 1."""
    last = torch.full((), n - 1, dtype=torch.int32, device=device)  # a tensor: another N compiles nothing anew
    return lambda batch, head, query, key: key - query + last


def _code(entry: Entry, n: int, device: torch.device) -> Read:
    """r_ij."""
    if entry.index is None:
        raise TypeError("a table has an index")
    diagonals = entry.index.diagonals(device)
    if diagonals is None:
        return _at(read_codes(entry.index, ALL_ROWS, device).to(torch.int32), set())
    diagonals, offset = diagonals.to(torch.int32), _offset(n, device)
    return lambda batch, head, query, key: diagonals[offset(batch, head, query, key)]


def _at(values: Tensor, seen: set[int]) -> Read:
    """Read (B or 1, H or 1, N or 1, M or 1).

    Sizes of 1 are left out of the reading: its gradient is one scattering, and FlexAttention takes no more of a tensor.
    """
    if id(values) in seen:
        values = values.clone()
    seen.add(id(values))
    axes = tuple(axis for axis, size in enumerate(values.shape) if size != 1)
    squeezed = values.reshape([values.shape[axis] for axis in axes])
    if not axes:
        return lambda batch, head, query, key: squeezed

    def read(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        places = (batch, head, query, key)
        return squeezed[tuple(places[axis] for axis in axes)]

    return read


def _table(table: Tensor, code: Read) -> Read:
    """Read (B or 1, H or 1, R) at the codes."""
    axes = tuple(axis for axis in (0, 1) if table.shape[axis] != 1)
    squeezed = table.reshape([*(table.shape[axis] for axis in axes), table.shape[2]])

    def read(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        places = (batch, head)
        return squeezed[(*(places[axis] for axis in axes), code(batch, head, query, key))]

    return read


def _product(product: Tensor, code: Read, of_queries: bool) -> Read:
    """Read q . K, (B, H, N, R), or k . Q, (B, H, M, R), at the codes."""

    def read(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return product[batch, head, query if of_queries else key, code(batch, head, query, key)]

    return read


def _gated(bias: Read, gate: Read) -> Read:
    """g_i b(i, j), where -inf stays."""

    def read(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        value = bias(batch, head, query, key)
        finite = value > -torch.inf
        return torch.where(finite, torch.where(finite, value, 0.0) * gate(batch, head, query, key), value)

    return read
