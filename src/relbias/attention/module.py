"""RelativeAttention: the layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from relbias.attention.cache import KVCache
from relbias.attention.functional import IMPLEMENTATIONS, relative_attention
from relbias.attention.indices import resolve_index
from relbias.attention.masks import Window
from relbias.encodings import Encoding, EncodingSpec, NoEncoding, create_encoding
from relbias.relations import Index, Relation
from relbias.relations.base import check_size
from relbias.terms import Terms


class RelativeAttention(nn.Module):
    """Multi-head attention that knows how two tokens are related.

    Projections, an encoding and `relative_attention`; see there for the equation.

    Args:
        dim: the size of a token.
        num_heads: H, a divisor of `dim`; the head size is D = dim / H.
        encoding: a name, a mapping from the names of relations to encodings, a callable that is given
            (num_heads, head_dim, relation), or an encoding already built, which is shared. See `create_encoding`.
        relation: the relation, or a mapping of them for a mapping of encodings; Sequence() by default.
        num_kv_heads: Hkv, the number of heads of k and v, a divisor of H; H by default.
        scale: c; D^-0.5 by default. "paper" takes that of the encoding's paper, which may be learned, and its
            normalisation of q and k.
        qkv_bias: whether the projections to q, k and v have a bias.
        dropout: the probability of dropping an attention weight in training.
        implementation: as in `relative_attention`.
        device: where parameters lie.
        dtype: of the parameters.

    Raises:
        ValueError: sizes do not divide, an unknown encoding or implementation, an encoding that does not take the
            relation (a table needs one with a limited number of codes), or one that is applied at the input.

    Example:
        >>> import relbias as rb
        >>> attention = rb.RelativeAttention(192, num_heads=3, encoding="table",
        ...                                  relation=rb.relations.Grid(14, 14, prefix_tokens=1))
        >>> attention(torch.randn(2, 197, 192)).shape
        torch.Size([2, 197, 192])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        encoding: EncodingSpec | Encoding = "none",
        relation: Relation | Mapping[str, Relation] | None = None,
        *,
        num_kv_heads: int | None = None,
        scale: float | Literal["paper"] | None = None,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        implementation: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        for name, size in (("dim", dim), ("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
            check_size(name, size, 1)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        if num_heads % num_kv_heads:
            raise ValueError(f"num_heads must be a multiple of num_kv_heads, got {num_heads} and {num_kv_heads}")
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"dropout is a probability from 0 to 1, got {dropout}")
        if implementation != "auto" and implementation not in IMPLEMENTATIONS:
            names = ", ".join(["auto", *IMPLEMENTATIONS])
            raise ValueError(f"there is no implementation {implementation!r}; known: {names}")
        self.dim, self.num_heads, self.num_kv_heads, self.head_dim = dim, num_heads, num_kv_heads, dim // num_heads
        self.dropout, self.implementation = dropout, implementation
        like: Any = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(dim, dim, bias=qkv_bias, **like)
        self.k_proj = nn.Linear(dim, num_kv_heads * self.head_dim, bias=qkv_bias, **like)
        self.v_proj = nn.Linear(dim, num_kv_heads * self.head_dim, bias=qkv_bias, **like)
        self.out_proj = nn.Linear(dim, dim, **like)
        built = isinstance(encoding, Encoding)
        self.encoding = create_encoding(encoding, num_heads, self.head_dim, relation)
        if hasattr(self.encoding, "embed"):
            raise ValueError(
                f"{self.encoding.label} is applied at the input, once, with .embed(x); "
                "build it beside the model's embedding and use encoding='none' here"
            )
        if not built:
            self.encoding.to(device=device, dtype=dtype)
        if isinstance(scale, str) and scale != "paper":
            raise ValueError(f'scale is a number, "paper" or None, got {scale!r}')
        if scale == "paper":
            _ = self.encoding.paper_scale  # a sum whose papers differ refuses here and not in the first call
        elif not built:
            self.encoding.drop_paper_scale()
        self.scale: float | Literal["paper"] | None = scale
        self._reset_projections()

    def reset_parameters(self) -> None:
        """Give every parameter its start: Xavier for projections, as in nn.MultiheadAttention, zero for biases."""
        self._reset_projections()
        self.encoding.reset_parameters()

    def _reset_projections(self) -> None:
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        memory: Tensor | None = None,
        index: Index | Mapping[str, Index] | None = None,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        window: Window | None = None,
        document_ids: Tensor | None = None,
        cache: KVCache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Attend from x to itself, or to a context.

        Args:
            x: (B, N, dim).
            context: (B, M, dim), what the keys and values are made from; x by default. An encoding with terms then
                needs an index.
            memory: (B, M - N, dim), tokens before those of x, which are keys and no queries.
            index: of N queries and M keys; for a mapping of encodings a mapping, where an absent key is inferred. By
                default the relation's own.
            attn_mask: broadcasting to (B, H, N, M); boolean True = may attend, or floating, added to the logits.
            key_padding_mask: (B, M) bool, True = padding; with a cache (B, N), of the new tokens, but for a context.
            is_causal: hide the keys after the query.
            window: (left, right), in positions: only keys with -left <= j - i <= right.
            document_ids: (B, N) integers: only keys of the query's document.
            cache: the tokens so far, to which those of x are added; or with a context its keys and values, which the
                first call makes and the others read.
            positions: (N,) or (B, N) integers, the positions of the tokens of x for the relations; masks count tokens.

        Returns:
            (B, N, dim).

        Raises:
            ValueError: shapes do not fit, or an index is needed and missing.
        """
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x must have shape (B, N, {self.dim}), got {tuple(x.shape)}")
        source = self._source(x, context, memory, cache is not None, positions, document_ids)
        q = rearrange(self.q_proj(x), "b n (h d) -> b h n d", h=self.num_heads)
        keys = self._keys(source, context is not None, cache, positions, key_padding_mask, document_ids)
        k, v = keys.tokens()
        terms = Terms()
        if not isinstance(self.encoding, NoEncoding):
            relation = self.encoding.relation
            n, m = q.shape[2], k.shape[2]
            resolved = resolve_index(relation, index, n, m, positions, keys.positions, context is not None)
            terms = self.encoding(resolved, x=source if self.encoding.makes_keys else x, attention=self)
        scale, normalize = self.scale, False
        if scale == "paper":
            scale, normalize = self.encoding.paper_scale, self.encoding.paper_normalize
        out = relative_attention(
            q,
            k,
            v,
            terms,
            attn_mask=attn_mask,
            key_padding_mask=keys.key_padding_mask,
            is_causal=is_causal,
            window=window,
            document_ids=keys.document_ids,
            dropout_p=self.dropout if self.training else 0.0,
            scale=scale,
            normalize=normalize,
            implementation=self.implementation,
        )
        if cache is not None:
            cache.assign(keys)  # only now: a call that was refused leaves the cache as it was
        return self.out_proj(rearrange(out, "b h n d -> b n (h d)"))

    def _source(
        self,
        x: Tensor,
        context: Tensor | None,
        memory: Tensor | None,
        cached: bool,
        positions: Tensor | None,
        document_ids: Tensor | None,
    ) -> Tensor:
        """What keys and values are made from, (B, M, dim)."""
        if context is not None and (memory is not None or positions is not None or document_ids is not None):
            raise ValueError("memory, positions and document_ids are of self-attention; leave them out with a context")
        if memory is not None and (cached or positions is not None or document_ids is not None):
            raise ValueError("a memory is of tokens one after another; leave out cache, positions and document_ids")
        if context is not None and self.encoding.makes_keys:
            raise ValueError(f"{self.encoding.label} makes the keys from x itself and takes no context")
        for name, given in (("context", context), ("memory", memory)):
            if given is not None and (given.ndim != 3 or (given.shape[0], given.shape[-1]) != (x.shape[0], self.dim)):
                raise ValueError(f"{name} must have shape ({x.shape[0]}, M, {self.dim}), got {tuple(given.shape)}")
        if memory is not None:
            return torch.cat((memory, x), dim=1)
        return x if context is None else context

    def _keys(
        self,
        source: Tensor,
        is_context: bool,
        cache: KVCache | None,
        positions: Tensor | None,
        key_padding_mask: Tensor | None,
        document_ids: Tensor | None,
    ) -> KVCache:
        """All keys and values of one call, with what goes with them."""
        if is_context and cache is not None and cache.length:
            k, v = cache.tokens()
            if (k.shape[0], k.shape[2]) != source.shape[:2]:
                raise ValueError(
                    f"the cache holds a context of shape {(k.shape[0], k.shape[2], self.dim)}, got "
                    f"{tuple(source.shape)}; call cache.reset() first"
                )
        else:
            k = rearrange(self.k_proj(source), "b m (h d) -> b h m d", h=self.num_kv_heads)
            v = rearrange(self.v_proj(source), "b m (h d) -> b h m d", h=self.num_kv_heads)
        if cache is None or is_context:
            return KVCache(k, v, positions, key_padding_mask, document_ids)
        return cache.appended(k, v, positions, key_padding_mask, document_ids)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, scale={self.scale}"
