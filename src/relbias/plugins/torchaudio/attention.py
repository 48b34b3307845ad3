"""The attention of wav2vec 2.0, HuBERT and WavLM with an encoding."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from relbias._extras import extra
from relbias.attention import relative_attention
from relbias.encodings import Encoding
from relbias.plugins.torch.attention import index_of
from relbias.plugins.torchaudio.gated_bias import own_terms
from relbias.terms import Terms

with extra("audio"):
    from torchaudio.models.wav2vec2.components import SelfAttention
    from torchaudio.models.wav2vec2.wavlm_attention import WavLMSelfAttention


class RelativeSelfAttention(SelfAttention):
    """The attention of wav2vec 2.0 and HuBERT, with an encoding at `self.encoding`."""

    host_class = SelfAttention
    encoding: Encoding

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """As torchaudio's.

        Args:
            x: (B, N, H D).
            attention_mask: (B, 1, N, N), added to the logits, or boolean, True = may attend.
            position_bias: not used.
            key_padding_mask: not used.

        Returns:
            The output, (B, N, H D), and None.

        Raises:
            ValueError: a shape does not fit.
        """
        _check(self, x, attention_mask)
        heads = (-1, (self.num_heads, self.head_dim))
        q, k, v = (p(x).unflatten(*heads).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        terms = self.encoding(index_of(self.encoding.relation, x.shape[1]), x=x, attention=self)
        return self.out_proj(_attend(self, q, k, v, terms, attention_mask)), None


class RelativeWavLMSelfAttention(WavLMSelfAttention):
    """The attention of WavLM, with an encoding at `self.encoding` beside its own gated bias.

    Layers hand on the table of their bias, (H, R), instead of the biases of all pairs, so that memory can stay linear
    in the number of frames.
    """

    host_class = WavLMSelfAttention
    encoding: Encoding

    def forward(
        self,
        query: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As torchaudio's, which takes no `attention_mask`.

        Args:
            query: (B, N, H D).
            key_padding_mask: (B, N), True = padding.
            attention_mask: (B, 1, N, N), added to the logits, or boolean, True = may attend.
            position_bias: (H, R), the table that the layer before handed on.

        Returns:
            The output, (B, N, H D), and the table, or None without one.

        Raises:
            ValueError: a shape does not fit.
        """
        _check(self, query, attention_mask)
        terms = self.encoding(index_of(self.encoding.relation, query.shape[1]), x=query, attention=self)
        table = self._table(position_bias)
        if table is not None:
            terms = own_terms(self, table, query) + terms
        projected = F.linear(query, self.attention.in_proj_weight, self.attention.in_proj_bias)
        q, k, v = projected.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4).unbind()
        return self.attention.out_proj(_attend(self, q, k, v, terms, attention_mask, key_padding_mask)), table

    def _table(self, handed_on: Tensor | None) -> Tensor | None:
        if handed_on is None and self.rel_attn_embed is not None:
            return self.rel_attn_embed.weight.T
        return handed_on


class ImportedWavLMSelfAttention(RelativeWavLMSelfAttention):
    """The attention of WavLM whose own bias is in the encoding."""

    host_class = WavLMSelfAttention

    def _table(self, handed_on: Tensor | None) -> None:
        return None


def _check(module: Any, x: Tensor, attention_mask: Tensor | None) -> None:
    if x.ndim != 3 or x.shape[-1] != module.embed_dim:
        raise ValueError(f"the layer's input has shape (batch, frames, {module.embed_dim}), got {tuple(x.shape)}")
    shape = (x.shape[0], 1, x.shape[1], x.shape[1])
    if attention_mask is not None and tuple(attention_mask.shape) != shape:
        raise ValueError(f"attention_mask has shape {shape}, got {tuple(attention_mask.shape)}")


def _attend(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms,
    attention_mask: Tensor | None,
    key_padding_mask: Tensor | None = None,
) -> Tensor:
    """Attention of all heads, (B, N, H D), before the last projection."""
    if attention_mask is not None and attention_mask.stride(2) == 0:
        # That of lengths is one row, expanded over the queries; as one row it never becomes a matrix.
        attention_mask = attention_mask[:, :, :1]
    out = relative_attention(
        q,
        k,
        v,
        terms,
        attn_mask=attention_mask,
        key_padding_mask=None if key_padding_mask is None else key_padding_mask.bool(),
        dropout_p=module.dropout if module.training else 0.0,
    )
    return out.transpose(1, 2).flatten(2)
