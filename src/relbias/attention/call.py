"""One call of attention, checked: what every implementation is given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relbias.attention.masks import Masks, Window
from relbias.terms import Entry, Terms


@dataclass(frozen=True)
class Call:
    """The arguments of `relative_attention`; see there. Made by `Call.of`, which checks them.

    Args:
        q: (B, H, N, D).
        k: (B, Hkv, M, D); head h of q meets head h // (H / Hkv) of k and v.
        v: (B, Hkv, M, Dv).
        terms: what the relations add.
        masks: what is hidden.
        dropout_p: the probability of dropping a weight.
        scale: c, a number or (H,).
        normalize: whether q and k are L2-normalised.
        return_weights: whether the weights are asked for.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    terms: Terms
    masks: Masks
    dropout_p: float
    scale: float | Tensor
    normalize: bool
    return_weights: bool

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        terms: Terms | None = None,
        *,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        window: Window | None = None,
        document_ids: Tensor | None = None,
        dropout_p: float = 0.0,
        scale: float | Tensor | None = None,
        normalize: bool = False,
        return_weights: bool = False,
    ) -> Call:
        """The call with these arguments, or a ValueError that says which one is wrong."""
        _check_qkv(q, k, v)
        batch, heads, n, dim = q.shape
        m = k.shape[2]
        terms = Terms() if terms is None else terms
        for entry in terms.entries:
            _check_entry(entry, batch, heads, n, m, dim, v.shape[3])
        _check_masks(attn_mask, key_padding_mask, window, document_ids, batch, heads, n, m)
        if not 0.0 <= dropout_p <= 1.0:
            raise ValueError(f"dropout_p is a probability from 0 to 1, got {dropout_p}")
        if isinstance(scale, Tensor) and scale.shape != (heads,):
            raise ValueError(f"scale is a number or one per head, ({heads},), got shape {tuple(scale.shape)}")
        masks = Masks(n, m, attn_mask, key_padding_mask, is_causal, window, document_ids)
        scale = dim**-0.5 if scale is None else scale
        return cls(q, k, v, terms, masks, dropout_p, scale, normalize, return_weights)

    @property
    def groups(self) -> int:
        """How many heads of q share one of k and v."""
        return self.q.shape[1] // max(self.k.shape[1], 1)

    @property
    def dtype(self) -> torch.dtype:
        """In which biases and sums are computed: at least float32."""
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def may_hide(self) -> bool:
        """Whether a logit can be -inf: by a mask, or by a bias, whose values are not looked at."""
        return not self.masks.empty or "b" in self.terms.names

    def factor(self) -> float | Tensor:
        """c, as a number or (H, 1, 1)."""
        if isinstance(self.scale, Tensor) and self.scale.ndim == 1:
            return self.scale[:, None, None].to(self.dtype)
        return self.scale  # a number, of which torch.jit.trace makes a tensor

    def converted(self, dtype: torch.dtype) -> Call:
        """The call with q, k, v and the tensors of the terms in a dtype; angles and functions keep theirs."""
        tensors = [self.q, self.k, self.v]
        for entry in self.terms.entries:
            tensors.extend(_tensors(entry).values())
        if all(tensor.dtype == dtype for tensor in tensors):
            return self
        entries = (_convert(entry, dtype) for entry in self.terms.entries)
        terms = Terms.of(*entries)
        return replace(self, q=self.q.to(dtype), k=self.k.to(dtype), v=self.v.to(dtype), terms=terms)

    def with_normalized(self) -> Call:
        """The call with q and k normalised where that is asked for."""
        if not self.normalize:
            return self
        q = torch.nn.functional.normalize(self.q.to(self.dtype), dim=-1).to(self.q.dtype)
        k = torch.nn.functional.normalize(self.k.to(self.dtype), dim=-1).to(self.k.dtype)
        return replace(self, q=q, k=k, normalize=False)

    def with_all_heads(self) -> Call:
        """The call with k and v repeated, so that they have as many heads as q."""
        if self.groups == 1:
            return self
        k, v = (x.repeat_interleave(self.groups, dim=1) for x in (self.k, self.v))
        return replace(self, k=k, v=v)

    def rotated(self) -> tuple[Tensor, Tensor]:
        """Q and k turned by the rotation, if there is one. k must have all heads."""
        rotation = self.terms.rotation
        if rotation is None:
            return self.q, self.k
        return rotation.rotate(self.q, rotation.q_angles), rotation.rotate(self.k, rotation.k_angles)


def _tensors(entry: Entry) -> dict[str, Tensor]:
    """The terms that are tensors, by name."""
    values = {name: getattr(entry, name) for name in ("b", "K", "Q", "V", "u", "w", "g")}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _convert(entry: Entry, dtype: torch.dtype) -> Entry:
    return replace(entry, **{name: value.to(dtype) for name, value in _tensors(entry).items()})


def _check_qkv(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"q, k and v have shape (batch, heads, tokens, head size); {shapes}")
    if not q.dtype == k.dtype == v.dtype or not q.dtype.is_floating_point:
        raise ValueError(f"q, k and v need one floating dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(f"q, k and v need the same batch size; {shapes}")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"k and v need the same heads and tokens; {shapes}")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k need the same head size; {shapes}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of q must be a multiple of those of k and v; {shapes}")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape equals the wanted one, with 1 allowed for any size and leading sizes left out."""
    if len(shape) > len(wanted):
        return False
    return all(s in (1, w) for s, w in zip(reversed(shape), reversed(wanted), strict=False))


def _check_entry(entry: Entry, batch: int, heads: int, n: int, m: int, dim: int, value_dim: int) -> None:
    if entry.index is not None:
        if tuple(entry.index.shape) != (n, m):
            raise ValueError(f"the index is of {entry.index.shape} queries and keys, q and k have ({n}, {m})")
        if not _fits(entry.index.batch_heads, (batch, heads)):
            raise ValueError(
                f"the index has codes for (batch, heads) {entry.index.batch_heads}, q has ({batch}, {heads})"
            )
    for name, value in _tensors(entry).items():
        fewest, wanted = _wanted_shape(entry, name, value, (batch, heads, n, m), value_dim if name == "V" else dim)
        exact = name in ("K", "Q", "V", "u", "w")  # these multiply vectors: their last size cannot be 1 for any
        if value.ndim < fewest or not _fits(tuple(value.shape), wanted) or (exact and value.shape[-1] != wanted[-1]):
            raise ValueError(f"the term {name} has shape {tuple(value.shape)}, which does not fit {wanted}")
    if entry.rotation is not None:
        factor = entry.rotation.factor
        if isinstance(factor, Tensor) and not (factor.ndim == 3 and _fits(tuple(factor.shape), (heads, 1, 1))):
            raise ValueError(
                f"the rotation's factor is a number or one per head, {(heads, 1, 1)}, got shape {tuple(factor.shape)}"
            )
        for side, angles, tokens in (("q", entry.rotation.q_angles, n), ("k", entry.rotation.k_angles, m)):
            shape = tuple(angles.shape)
            wanted = (batch, heads, tokens, dim // 2)
            if len(shape) != 4 or not _fits(shape[:3], wanted[:3]) or shape[2] != tokens or shape[3] > wanted[3]:
                raise ValueError(
                    f"the rotation's {side}_angles have shape {shape}, which does not fit {wanted} "
                    "with at most that many pairs"
                )


def _wanted_shape(
    entry: Entry, name: str, value: Tensor, sizes: tuple[int, int, int, int], dim: int
) -> tuple[int, tuple[int, ...]]:
    """How many axes a term has at least, and its full shape. Rows of tables were checked against their index."""
    batch, heads, n, m = sizes
    if name == "b":
        return (1, (batch, heads, n, m)) if entry.index is None else (2, (batch, heads, value.shape[-1]))
    if name == "g":
        return 3, (batch, heads, n)
    if name in ("u", "w"):
        return 2, (heads, dim)
    return 3, (batch, heads, value.shape[-2], dim)


def _check_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    window: Window | None,
    document_ids: Tensor | None,
    batch: int,
    heads: int,
    n: int,
    m: int,
) -> None:
    for name, mask in (
        ("attn_mask", attn_mask),
        ("key_padding_mask", key_padding_mask),
        ("document_ids", document_ids),
    ):
        if mask is not None and not isinstance(mask, Tensor):
            raise ValueError(f"{name} must be a tensor, got a {type(mask).__name__}; convert it with torch.as_tensor")
    if attn_mask is not None:
        if attn_mask.dtype != torch.bool and not attn_mask.dtype.is_floating_point:
            raise ValueError(f"attn_mask is boolean (True = may attend) or floating, got {attn_mask.dtype}")
        if not _fits(tuple(attn_mask.shape), (batch, heads, n, m)):
            raise ValueError(f"attn_mask has shape {tuple(attn_mask.shape)}, which does not fit {(batch, heads, n, m)}")
    if key_padding_mask is not None:
        if key_padding_mask.dtype != torch.bool:
            raise ValueError(f"key_padding_mask is boolean (True = padding), got {key_padding_mask.dtype}")
        if tuple(key_padding_mask.shape) != (batch, m):
            raise ValueError(f"key_padding_mask has shape {tuple(key_padding_mask.shape)}, expected {(batch, m)}")
    if window is not None and not (
        isinstance(window, tuple | list) and len(window) == 2 and all(isinstance(w, int) and w >= 0 for w in window)
    ):
        raise ValueError(f"window is (left, right), two integers of at least 0, got {window!r}")
    if document_ids is not None:
        if tuple(document_ids.shape) != (batch, m):
            raise ValueError(
                f"document_ids has shape {tuple(document_ids.shape)}, expected {(batch, m)}: one per key, "
                "of which the queries are the last"
            )
        if n > m:
            raise ValueError(f"document_ids are those of {m} keys, of which {n} queries cannot be the last")
