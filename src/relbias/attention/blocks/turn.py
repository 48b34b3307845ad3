"""Turning q and k with few passes over memory, and back in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relbias.attention.call import Call
from relbias.terms import Rotation


class _Turn(torch.autograd.Function):
    """Pairs of numbers times cos and sin, which need no gradient; the gradient is turned the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _turn(x, cos, sin, interleaved)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, -sin, ctx.interleaved), None, None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    pairs = cos.shape[-1]
    if interleaved:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out[..., first] = x[..., first] * cos
    out[..., first].addcmul_(x[..., second], sin, value=-1)
    out[..., second] = x[..., second] * cos
    out[..., second].addcmul_(x[..., first], sin)
    out[..., 2 * pairs :] = x[..., 2 * pairs :]
    return out


def turned(call: Call) -> tuple[Tensor, Tensor]:
    """Q and k turned by the rotation, if there is one; as `call.rotated()`, and several times faster."""
    rotation = call.terms.rotation
    if rotation is None or type(rotation) is not Rotation or _learned(rotation):
        return call.rotated()  # of a subclass only its `rotate` is known
    q_factors = _cos_sin(rotation, rotation.q_angles, call.dtype)
    same = rotation.k_angles is rotation.q_angles
    k_factors = q_factors if same else _cos_sin(rotation, rotation.k_angles, call.dtype)
    q = _Turn.apply(call.q, *q_factors, rotation.interleaved)
    return q, _Turn.apply(call.k, *k_factors, rotation.interleaved)


def _learned(rotation: Rotation) -> bool:
    parts = (rotation.q_angles, rotation.k_angles, rotation.factor)
    return any(isinstance(part, Tensor) and part.requires_grad for part in parts)


def _cos_sin(rotation: Rotation, angles: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return (angles.cos() * rotation.factor).to(dtype), (angles.sin() * rotation.factor).to(dtype)
