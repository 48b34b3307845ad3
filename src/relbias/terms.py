"""The terms of the equation: the closed set of what an encoding may add to attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from relbias.relations import Index

Bias: TypeAlias = Tensor | Callable[[slice], Tensor]


def scale_bias(b: Tensor, factor: Tensor) -> Tensor:
    """A bias times a factor that broadcasts to it; -inf stays -inf, whatever the factor.

    -inf must not reach the product: 0 * inf would be the gradient of the factor.
    """
    finite = b.isfinite()
    return torch.where(finite, torch.where(finite, b, 0.0) * factor, b)


@dataclass(frozen=True)
class Rotation:
    """Angles by which pairs of dimensions of q and k are turned before their product (RoPE).

    Pair p of a head turns (x1, x2) into (x1 cos a - x2 sin a, x1 sin a + x2 cos a). With P pairs the first 2 P
    dimensions turn and the rest stay.

    Args:
        q_angles: (B or 1, H or 1, N, P) float64, in radians. Float64 whatever the model's dtype is, so that a
            half-precision model turns by the same angles as a float32 one.
        k_angles: (B or 1, H or 1, M, P) float64, in radians.
        interleaved: whether pair p is dimensions (2 p, 2 p + 1), or (p, p + P) as by default.
        factor: by which the turned pairs of q and of k are multiplied, so that their product gets its square (the
            attention factor of YaRN); dimensions that stay are left alone. A number or (H or 1, 1, 1) float64.

    Example:
        >>> angles = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
        >>> Rotation(angles, angles).rotate(torch.ones(1, 1, 3, 4), angles).shape
        torch.Size([1, 1, 3, 4])
    """

    q_angles: Tensor
    k_angles: Tensor
    interleaved: bool = False
    factor: float | Tensor = 1.0

    def rotate(self, x: Tensor, angles: Tensor) -> Tensor:
        """Turn x, (B, H, N, D), by angles, (B or 1, H or 1, N, P), times `factor`; the result has x's dtype.

        Half precision is turned in float32 and rounded once, at the end.
        """
        dtype = torch.promote_types(x.dtype, torch.float32)
        cos, sin = (angles.cos() * self.factor).to(dtype), (angles.sin() * self.factor).to(dtype)
        numbers, turning = x.to(dtype), 2 * angles.shape[-1]
        if self.interleaved:
            x1, x2 = numbers[..., 0:turning:2], numbers[..., 1:turning:2]
            partner = torch.stack((-x2, x1), dim=-1).flatten(-2)
            cos, sin = cos.repeat_interleave(2, dim=-1), sin.repeat_interleave(2, dim=-1)
        else:
            x1, x2 = numbers[..., :turning].chunk(2, dim=-1)
            partner = torch.cat((-x2, x1), dim=-1)
            cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
        still = x.shape[-1] - turning
        if still:
            partner = torch.cat((partner, numbers[..., turning:]), dim=-1)
            cos, sin = nn.functional.pad(cos, (0, still), value=1.0), nn.functional.pad(sin, (0, still))
        # x comes first, whose layout in memory the result takes: another one would round differently in attention.
        return (numbers * cos + partner * sin).to(x.dtype)


@dataclass(frozen=True)
class Entry:
    """The terms of one relation t; a field that is None is absent.

    Args:
        b: a bias added to the logits, not scaled by c. With an index a table, ([B,] H or 1, R); without one a given
            matrix broadcasting to (B, H, N, M), or a function of the rows (a slice of the N queries, n of them) that
            returns their part, (B or 1, H or 1, n, M). It may hold -inf.
        K: ([B,] H or 1, R, D), multiplied with the query: c (q_i + w) . K[r_ij].
        Q: ([B,] H or 1, R, D), multiplied with the key: c k_j . Q[r_ij].
        V: ([B,] H or 1, R, D), added to the values: v_j + V[r_ij].
        u: (H or 1, D), multiplied with the key: c u . k_j.
        w: (H or 1, D), added to the query for K.
        g: (B, H or 1, N), a factor of b per query.
        rotation: the turning of q and k.
        index: gives the codes r_ij of b, K, Q and V.
    """

    b: Bias | None = None
    K: Tensor | None = None
    Q: Tensor | None = None
    V: Tensor | None = None
    u: Tensor | None = None
    w: Tensor | None = None
    g: Tensor | None = None
    rotation: Rotation | None = None
    index: Index | None = None

    def __post_init__(self) -> None:
        for name in ("K", "Q", "V"):
            table = getattr(self, name)
            if table is None:
                continue
            if self.index is None:
                raise ValueError(f"the table {name} needs an index that gives its codes")
            if table.ndim not in (3, 4):
                raise ValueError(f"{name} must have shape ([B,] H or 1, R, D), got {tuple(table.shape)}")
            self._check_codes(name, table.shape[-2])
        if isinstance(self.b, Tensor) and self.index is not None:
            if self.b.ndim not in (2, 3):
                raise ValueError(f"a table b must have shape ([B,] H or 1, R), got {tuple(self.b.shape)}")
            self._check_codes("b", self.b.shape[-1])
        if self.g is not None and self.b is None:
            raise ValueError("the gate g is a factor of b, and there is no b")
        if self.w is not None and self.K is None:
            raise ValueError("w is multiplied with K, and there is no K")

    def _check_codes(self, name: str, rows: int) -> None:
        codes = self.index.num_codes if self.index is not None else None
        if codes is None:
            raise ValueError(
                f"the table {name} needs an index with a limited number of codes; "
                "give the relation a limit, for example Sequence(max_distance=128)"
            )
        if codes > rows:
            raise ValueError(f"the table {name} has {rows} rows and the index {codes} codes; `resize` the table")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms that are present, in the order of the equation."""
        return tuple(f.name for f in fields(self) if f.name != "index" and getattr(self, f.name) is not None)


def scale_entry(entry: Entry, strength: Tensor) -> Entry:
    """The entry with b, K, Q, V, u and the angles multiplied by strength, (H,).

    A rotation multiplies a pair, as a complex number, by f e^(i a): with strength s by its power f^s e^(i s a).
    """
    b, rotation, per_pair = entry.b, entry.rotation, strength[:, None, None]
    if isinstance(b, Tensor):
        b = scale_bias(b, per_pair if entry.index is None else strength[:, None])
    elif b is not None:
        function = b

        def b(rows: slice) -> Tensor:
            return scale_bias(function(rows), per_pair)

    if rotation is not None:
        power = per_pair.to(rotation.q_angles.dtype)
        rotation = replace(
            rotation,
            q_angles=rotation.q_angles * power,
            k_angles=rotation.k_angles * power,
            factor=rotation.factor**power,
        )
    tables = {name: getattr(entry, name) * per_pair for name in ("K", "Q", "V") if getattr(entry, name) is not None}
    u = None if entry.u is None else entry.u * strength[:, None]
    return replace(entry, b=b, u=u, rotation=rotation, **tables)


@dataclass(frozen=True, init=False)
class Terms:
    """What relations add to one call of attention: entries that are summed.

    `Terms(b=..., index=...)` has one entry with the fields of :class:`Entry`, `Terms()` none; `a + b` joins two.

    Raises:
        ValueError: a table without an index or too small for it, or two rotations.

    Example:
        >>> from relbias.relations import Sequence
        >>> table = torch.zeros(8, 5)
        >>> terms = Terms(b=table, index=Sequence(max_distance=2)(10, 10)) + Terms(u=torch.zeros(8, 64))
        >>> terms.names
        ('b', 'u')
    """

    entries: tuple[Entry, ...] = field(default=())

    def __init__(
        self,
        b: Bias | None = None,
        K: Tensor | None = None,
        Q: Tensor | None = None,
        V: Tensor | None = None,
        u: Tensor | None = None,
        w: Tensor | None = None,
        g: Tensor | None = None,
        rotation: Rotation | None = None,
        index: Index | None = None,
    ) -> None:
        entry = Entry(b, K, Q, V, u, w, g, rotation, index)
        object.__setattr__(self, "entries", (entry,) if entry.names else ())

    @classmethod
    def of(cls, *entries: Entry) -> Terms:
        """The terms with these entries."""
        if sum(entry.rotation is not None for entry in entries) > 1:
            raise ValueError("at most one relation may rotate q and k; two of the encodings given do")
        terms = cls()
        object.__setattr__(terms, "entries", entries)
        return terms

    def __add__(self, other: Terms) -> Terms:
        return Terms.of(*self.entries, *other.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms that are present in any entry."""
        return tuple(dict.fromkeys(name for entry in self.entries for name in entry.names))

    @property
    def rotation(self) -> Rotation | None:
        """The one rotation, if there is one."""
        return next((entry.rotation for entry in self.entries if entry.rotation is not None), None)
