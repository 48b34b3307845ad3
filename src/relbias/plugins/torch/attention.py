"""nn.MultiheadAttention with an encoding, and what keeps torch's fused inference from passing it by."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from relbias.attention import relative_attention
from relbias.encodings import Encoding
from relbias.relations import Relation, Sequence


class Off:
    """A flag of a host that reads False, whatever the host wrote, which lies beneath and is back after `detach`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: type | None = None) -> bool:
        return False

    def __set__(self, module: nn.Module, value: bool) -> None:
        module.__dict__[self.name] = value


class RelativeMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention of a sequence with itself, with an encoding at `self.encoding`.

    Arguments, masks, shapes and results are those of nn.MultiheadAttention, with one difference: a query whose every
    key is masked gets attention 0 (its output is the bias of `out_proj`) and finite gradients, where torch gives NaN.
    """

    host_class = nn.MultiheadAttention
    encoding: Encoding

    # TransformerEncoderLayer asks for this flag before it hands the weights to a fused kernel, past `forward`.
    _qkv_same_embed_dim: Any = Off()

    def _reset_parameters(self) -> None:
        # torch's own, which reads the flag above, on a stand-in that has the same parameters.
        plain = copy.copy(self)
        plain.__class__ = nn.MultiheadAttention  # ty: ignore[invalid-assignment]
        plain._reset_parameters()
        self.encoding.reset_parameters()

    def index_of_call(self, tokens: int) -> Any:
        """The index of a call with N tokens, or for a sum of encodings a mapping of them."""
        return index_of(self.encoding.relation, tokens)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As in nn.MultiheadAttention, where a boolean mask is True at what is blocked.

        Args:
            query: (B, N, H D) if `batch_first`, else (N, B, H D), or without a batch (N, H D).
            key: the same tensor.
            value: of the same shape.
            key_padding_mask: (B, N), or (N,) without a batch; boolean True = padding, or floating, added to the logits.
            need_weights: whether to return the weights.
            attn_mask: (N, N) or (B H, N, N); boolean True = blocked, or floating, added to the logits.
            average_attn_weights: whether to return the mean of the heads' weights.
            is_causal: a hint that `attn_mask` is causal; without weights and padding only the hint counts.

        Returns:
            The output, of the query's shape, and the weights, (B, N, N), or (B, H, N, N) if not averaged, or None.

        Raises:
            ValueError: the key is another tensor than the query, or a shape does not fit.
        """
        if query.is_nested:
            raise ValueError(
                "attention with an encoding takes no nested tensors; attach to the whole model, or build the "
                "TransformerEncoder with enable_nested_tensor=False"
            )
        if not _same(query, key):
            raise ValueError(
                "attention with an encoding was called with a key that is not the query: cross-attention has no "
                "default relation; attach to the part of the model that attends to itself, and pass one tensor as both"
            )
        if query.ndim not in (2, 3) or query.shape[-1] != self.embed_dim or value.shape != query.shape:
            raise ValueError(
                f"query, key and value have one shape, ([batch,] tokens, {self.embed_dim}), batch first or second; "
                f"got query {tuple(query.shape)} and value {tuple(value.shape)}"
            )
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is a hint about attn_mask, as in nn.MultiheadAttention; give the mask too")
        batched = query.ndim == 3
        tokens_first = [self._tokens_first(x) for x in ((query,) if _same(query, value) else (query, value))]
        q, k, v = (
            x.unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3) for x in self._project(*tokens_first)
        )
        batch, _, tokens, _ = q.shape
        if is_causal and key_padding_mask is None and not need_weights:
            attn_mask = None
        else:
            is_causal = False
            attn_mask, key_padding_mask = self._masks(attn_mask, key_padding_mask, batch, tokens)
        terms = self.encoding(self.index_of_call(tokens), x=tokens_first[0].transpose(0, 1), attention=self)
        dropout_p = self.dropout if self.training else 0.0
        if need_weights:
            implementation = "reference"
        else:
            # Only torch's fused attention gives the host's very numbers; with gradients the nearest will do, and with
            # dropout there are none.
            implementation = "auto" if torch.is_grad_enabled() or dropout_p else "folded"
        result = relative_attention(
            q,
            k,
            v,
            terms,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            dropout_p=dropout_p,
            implementation=implementation,
            return_weights=need_weights,
        )
        attended, weights = result if need_weights else (result, None)
        out = F.linear(attended.permute(2, 0, 1, 3).flatten(2), self.out_proj.weight, self.out_proj.bias)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return out.squeeze(1), None if weights is None else weights.squeeze(0)
        return out.transpose(0, 1) if self.batch_first else out, weights

    def _tokens_first(self, x: Tensor) -> Tensor:
        """(N, B, H D)."""
        if x.ndim == 2:
            return x.unsqueeze(1)
        return x.transpose(0, 1) if self.batch_first else x

    def _project(self, x: Tensor, value: Tensor | None = None) -> tuple[Tensor, ...]:
        """The queries, keys and values, (N, B, H D) each, by the same products as in torch."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if value is None:
            return F.linear(x, weight, bias).unflatten(-1, (3, -1)).movedim(-2, 0).contiguous().unbind()
        weights, biases = weight.chunk(3), (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(F.linear(y, w, b) for y, w, b in zip((x, x, value), weights, biases, strict=True))

    def _masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, tokens: int
    ) -> tuple[Tensor | None, Tensor | None]:
        """The masks as `relative_attention` takes them: True = may attend, and padding is boolean."""
        for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
            if mask is not None and mask.dtype != torch.bool and not mask.dtype.is_floating_point:
                raise ValueError(f"{name} is boolean (True = blocked) or floating, got {mask.dtype}")
        if attn_mask is not None:
            shapes = (tokens, tokens), (batch * self.num_heads, tokens, tokens)
            if tuple(attn_mask.shape) not in shapes:
                raise ValueError(f"attn_mask has shape {shapes[0]} or {shapes[1]}, got {tuple(attn_mask.shape)}")
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
            if attn_mask.dtype == torch.bool:
                attn_mask = ~attn_mask
        if key_padding_mask is not None:
            if key_padding_mask.ndim == 1:
                key_padding_mask = key_padding_mask.unsqueeze(0)
            if tuple(key_padding_mask.shape) != (batch, tokens):
                raise ValueError(
                    f"key_padding_mask has shape {(batch, tokens)}, or {(tokens,)} without a batch, "
                    f"got {tuple(key_padding_mask.shape)}"
                )
            if key_padding_mask.dtype != torch.bool:
                added = key_padding_mask[:, None, None]
                if attn_mask is None:
                    attn_mask = added
                elif attn_mask.dtype == torch.bool:
                    attn_mask = torch.where(attn_mask, added, -math.inf)
                else:
                    attn_mask = attn_mask + added
                key_padding_mask = None
        return attn_mask, key_padding_mask


class UnnestedTransformerEncoder(nn.TransformerEncoder):
    """nn.TransformerEncoder that keeps its input padded; its fused inference would make it a nested tensor."""

    host_class = nn.TransformerEncoder
    use_nested_tensor: Any = Off()


def index_of(relation: Relation | Mapping[str, Relation], tokens: int | None = None) -> Any:
    """The index of N tokens with themselves.

    Args:
        relation: a Sequence or a Grid, or for a sum of encodings a mapping of them.
        tokens: N; by default any number that suits the relation.

    Returns:
        An index, or for a sum of encodings a mapping of them.

    Raises:
        ValueError: N is not the number of tokens of a grid.
    """
    if isinstance(relation, Mapping):
        return {key: index_of(part, tokens) for key, part in relation.items()}
    if isinstance(relation, Sequence):
        return relation(1 if tokens is None else tokens)
    index = relation()
    if tokens is not None and index.shape[0] != tokens:
        raise ValueError(f"{relation!r} has {index.shape[0]} tokens and the call has {tokens}; attach the call's grid")
    return index


def _same(query: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one, or two views of the very same numbers."""
    if other is query:
        return True
    return (
        not (torch.compiler.is_compiling() or query.is_meta) and query.dtype == other.dtype and query.is_set_to(other)
    )
