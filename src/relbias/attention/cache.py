"""What decoding keeps of the tokens so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class KVCache:
    """The keys and values of the tokens so far, one cache per layer, updated in place.

    Keys are stored unrotated, so that a rotation whose frequencies depend on the length stays right.

    Args:
        k: (B, Hkv, M, D) or None before the first tokens.
        v: (B, Hkv, M, D).
        positions: (B or 1, M) int64, if positions were given.
        key_padding_mask: (B, M) bool, True = padding, if padding was given.
        document_ids: (B, M), if they were given.

    Example:
        >>> import relbias as rb
        >>> attention, cache = rb.RelativeAttention(64, num_heads=4, encoding="rope"), rb.KVCache()
        >>> for token in torch.randn(3, 2, 1, 64):
        ...     y = attention(token, cache=cache, is_causal=True)
        >>> cache.length
        3
    """

    k: Tensor | None = None
    v: Tensor | None = None
    positions: Tensor | None = None
    key_padding_mask: Tensor | None = None
    document_ids: Tensor | None = None

    @property
    def length(self) -> int:
        """M, the number of tokens so far."""
        return 0 if self.k is None else self.k.shape[2]

    def tokens(self) -> tuple[Tensor, Tensor]:
        """The keys and the values so far, each (B, Hkv, M, D).

        Raises:
            ValueError: there are none.
        """
        if self.k is None or self.v is None:
            raise ValueError("the cache is empty; append tokens first")
        return self.k, self.v

    def reset(self) -> None:
        """Forget all tokens."""
        self.assign(KVCache())

    def assign(self, other: KVCache) -> None:
        """Hold the tokens of another cache."""
        vars(self).update(vars(other))

    def keep(self, length: int) -> None:
        """Forget all tokens but the last ones.

        Args:
            length: how many are kept, if there are so many.
        """
        first = max(self.length - length, 0)
        if first == 0:
            return
        k, v = self.tokens()
        rest = (self.positions, self.key_padding_mask, self.document_ids)
        # Copies, for a view of the last tokens would hold the others as well.
        kept = (k[:, :, first:], v[:, :, first:], *(None if x is None else x[:, first:] for x in rest))
        self.assign(KVCache(*(None if x is None else x.clone() for x in kept)))

    def appended(
        self,
        k: Tensor,
        v: Tensor,
        positions: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> KVCache:
        """A cache of the tokens so far and some more; this one is left as it is.

        Args:
            k: (B, Hkv, N, D), their keys, unrotated.
            v: (B, Hkv, N, D), their values.
            positions: (N,) or (B, N) integers.
            key_padding_mask: (B, N) bool, True = padding; without it they are no padding.
            document_ids: (B, N) integers.

        Raises:
            ValueError: another batch or shape, or positions or document_ids in some calls and not in others.
        """
        batch, _, n, _ = k.shape
        for name, value in (("key_padding_mask", key_padding_mask), ("document_ids", document_ids)):
            if value is not None and tuple(value.shape) != (batch, n):
                raise ValueError(f"{name} of the new tokens must have shape {(batch, n)}, got {tuple(value.shape)}")
        if positions is not None:
            if tuple(positions.shape) not in ((n,), (1, n), (batch, n)):
                raise ValueError(f"positions must have shape {(n,)} or {(batch, n)}, got {tuple(positions.shape)}")
            positions = positions if positions.ndim == 2 else positions[None]
        if self.k is None or self.v is None:
            # Copies of what the caller may change in place; k and v were made by the layer.
            return KVCache(
                k, v, *(None if x is None else x.clone() for x in (positions, key_padding_mask, document_ids))
            )
        if self.k.shape[0] != batch:
            raise ValueError(f"the cache holds a batch of {self.k.shape[0]}, got {batch}; call cache.reset() first")
        if self.k.shape[1::2] != k.shape[1::2] or self.v.shape[1::2] != v.shape[1::2] or self.k.dtype != k.dtype:
            raise ValueError(
                f"the cache holds {self.k.dtype} keys of {self.k.shape[1]} heads of {self.k.shape[3]}, "
                f"got {k.dtype} of {k.shape[1]} of {k.shape[3]}; each layer needs a cache of its own"
            )
        padding = None
        if self.key_padding_mask is not None or key_padding_mask is not None:
            none = torch.zeros(batch, self.length + n, dtype=torch.bool, device=k.device)
            before = none[:, : self.length] if self.key_padding_mask is None else self.key_padding_mask
            padding = torch.cat(
                (before, none[:, self.length :] if key_padding_mask is None else key_padding_mask), dim=1
            )
        return KVCache(
            torch.cat((self.k, k), dim=2),
            torch.cat((self.v, v), dim=2),
            _append("positions", self.positions, positions),
            padding,
            _append("document_ids", self.document_ids, document_ids),
        )


def _append(name: str, before: Tensor | None, after: Tensor | None) -> Tensor | None:
    if before is None and after is None:
        return None
    if before is None or after is None:
        given, missing = ("now", "before") if before is None else ("before", "now")
        raise ValueError(
            f"{name} were given {given} and not {missing}; give them in every call with a cache, or in none"
        )
    batch = max(len(before), len(after))
    return torch.cat((before.expand(batch, -1), after.expand(batch, -1)), dim=1)
