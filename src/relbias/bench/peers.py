"""Attention layers of other libraries, each with its own projections and the library's defaults."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relbias.relations import Grid, Relation


@dataclass(frozen=True)
class Peer:
    """A layer of another library.

    Args:
        name: in the table.
        make: builds it for H heads of size D and a relation; None where it has none for the relation. It
            maps (B, N, H D) to the same shape.
    """

    name: str
    make: Callable[[int, int, Relation], nn.Module | None]


class _Called(nn.Module):
    """A module whose output is the first of what another returns."""

    def __init__(self, module: nn.Module, **arguments: Any) -> None:
        super().__init__()
        self.module, self.arguments = module, arguments

    def forward(self, x: Tensor) -> Tensor:
        out = self.module(x, **self.arguments)
        return out[0] if isinstance(out, tuple) else out


class _DeBERTa(nn.Module):
    """The attention of transformers' DeBERTa-v2 with its relative embeddings, and an output projection."""

    def __init__(self, heads: int, size: int) -> None:
        from transformers import DebertaV2Config
        from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

        super().__init__()
        options: dict[str, Any] = {
            "hidden_size": heads * size,
            "num_attention_heads": heads,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 256,
            "max_relative_positions": 512,
            "share_att_key": False,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        config = DebertaV2Config(**options)
        self.attention = DisentangledSelfAttention(config)
        self.embeddings = nn.Parameter(0.02 * torch.randn(512, heads * size))
        self.out = nn.Linear(heads * size, heads * size)

    def forward(self, x: Tensor) -> Tensor:
        every = torch.ones(1, 1, 1, x.shape[1], dtype=torch.bool, device=x.device)
        return self.out(self.attention(x, every, rel_embeddings=self.embeddings)[0])


def _t5(heads: int, size: int, relation: Relation) -> nn.Module:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=heads * size, d_kv=size, num_heads=heads, dropout_rate=0.0)
    config._attn_implementation = "sdpa"
    return _Called(T5Attention(config, has_relative_attention_bias=True))


def _deberta(heads: int, size: int, relation: Relation) -> nn.Module:
    return _DeBERTa(heads, size)


def _timm(heads: int, size: int, relation: Relation) -> nn.Module | None:
    from timm.layers import RelPosBias
    from timm.models.vision_transformer_relpos import RelPosAttention

    if not isinstance(relation, Grid):
        return None

    window = (relation.height, relation.width)
    bias: Any = functools.partial(RelPosBias, window, prefix_tokens=relation.prefix_tokens)
    return RelPosAttention(heads * size, heads, qkv_bias=True, rel_pos_cls=bias)


def _x_transformers(bias: str) -> Callable[[int, int, Relation], nn.Module | None]:
    def make(heads: int, size: int, relation: Relation) -> nn.Module | None:
        from x_transformers import x_transformers

        if isinstance(relation, Grid):
            return None
        position = getattr(x_transformers, bias)
        built = position(heads=heads) if bias == "AlibiPositionalBias" else position(size**0.5, heads=heads)
        attention = x_transformers.Attention(heads * size, dim_head=size, heads=heads, flash=True)
        return _Called(_WithBias(attention, built))

    return make


class _WithBias(nn.Module):
    def __init__(self, attention: nn.Module, bias: nn.Module) -> None:
        super().__init__()
        self.attention, self.bias = attention, bias

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, rel_pos=self.bias)


PEERS: Mapping[str, tuple[Peer, ...]] = {
    "t5": (
        Peer("transformers T5Attention", _t5),
        Peer("x-transformers RelativePositionBias", _x_transformers("RelativePositionBias")),
    ),
    "alibi": (Peer("x-transformers AlibiPositionalBias", _x_transformers("AlibiPositionalBias")),),
    "deberta": (Peer("transformers DeBERTa-v2 attention", _deberta),),
    "table": (Peer("timm RelPosAttention", _timm),),
}
"""By the name of our encoding that they compute."""
