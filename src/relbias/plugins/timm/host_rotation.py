"""The rotation of a host that turns q and k itself, as the rotation of the terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.terms import Rotation, Terms


@dataclass(frozen=True)
class HostTurn:
    """How a host turns q and k.

    Args:
        apply: turns q or k, (B, H, N, D), with the host's own operations, whose numbers must not change.
        interleaved: whether it turns the dimensions (2 p, 2 p + 1), or (p, p + P) as by default, of each part.
        parts: into how many equal parts a head is cut before pairs are made.
    """

    apply: Callable[[Tensor], Tensor]
    interleaved: bool = False
    parts: int = 1


@dataclass(frozen=True)
class _HostRotation(Rotation):
    """The host's turn, then that of the encoding, if it has one, in the same pairs of dimensions."""

    turn: HostTurn = HostTurn(lambda x: x)

    def rotate(self, x: Tensor, angles: Tensor) -> Tensor:
        x = self.turn.apply(x)
        if not angles.shape[-1]:
            return x
        if self.turn.parts == 1:
            return super().rotate(x, angles)
        pieces = zip(x.chunk(self.turn.parts, -1), angles.chunk(self.turn.parts, -1), strict=True)
        return torch.cat([super(_HostRotation, self).rotate(*piece) for piece in pieces], dim=-1)


def with_host_turn(terms: Terms, turn: HostTurn, tokens: int, head_dim: int) -> Terms:
    """Terms whose rotation is the host's, followed by their own.

    Two turns of the same pairs add their angles, so that q_i . k_j depends on the offset alone, as it does in the
    host; of other pairs they would not. Which pairs an encoding turns is a convention, and here it is the host's.
    The other terms, K and Q say, meet q and k that are not turned, as in the equation.

    Args:
        terms: of an encoding.
        turn: of the host.
        tokens: N.
        head_dim: D.
    """
    own = terms.rotation
    if own is None:
        none = torch.zeros(1, 1, tokens, 0, dtype=torch.float64)
        return terms + Terms(rotation=_HostRotation(none, none, turn=turn))
    q_angles, k_angles = own.q_angles, own.k_angles
    if not turn.interleaved:
        still = head_dim // 2 - q_angles.shape[-1]  # pairs (p, p + D / 2) only if all of them are named
        q_angles, k_angles = (torch.nn.functional.pad(angles, (0, still)) for angles in (q_angles, k_angles))
    both = _HostRotation(q_angles, k_angles, turn.interleaved, own.factor, turn)
    return Terms.of(*(e if e.rotation is None else replace(e, rotation=both) for e in terms.entries))
