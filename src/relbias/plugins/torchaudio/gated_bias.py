"""WavLM's own gated bias: as terms beside an encoding, or taken over by the encoding "wavlm"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from relbias.encodings import WavLM
from relbias.encodings.base import find_encoding
from relbias.encodings.buckets import t5_buckets
from relbias.encodings.wavlm import wavlm_gates
from relbias.relations import Sequence as Frames
from relbias.terms import Terms


def own_terms(attention: Any, table: Tensor, x: Tensor) -> Terms:
    """The terms of a layer's own gated bias.

    Args:
        attention: torchaudio's WavLMSelfAttention.
        table: (H, R), of the first layer.
        x: (B, N, H D), the layer's input.
    """
    bucket = partial(
        t5_buckets, num_buckets=attention.num_buckets, max_distance=attention.max_distance, bidirectional=True
    )
    linear, constant = attention.gru_rel_pos_linear, attention.gru_rel_pos_const.flatten()
    gates = wavlm_gates(x, linear.weight, linear.bias, constant)
    return Terms(b=table, g=gates, index=Frames()(x.shape[1]).map(bucket, attention.num_buckets))


def is_wavlm(encoding: Any) -> bool:
    """Whether an encoding, as given to `attach`, is the one that takes the own bias over.

    Args:
        encoding: its name or class; one already built, or in a mapping, is another beside the own bias.

    Raises:
        ValueError: there is no encoding of this name.
    """
    return (find_encoding(encoding) if isinstance(encoding, str) else encoding) is WavLM


def options_of(layers: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the encoding that can hold the own bias.

    Args:
        layers: torchaudio's WavLMSelfAttention modules.
        options: given by the user.

    Raises:
        ValueError: another one is given.
    """
    sizes = {(layer.num_buckets, layer.max_distance) for layer in layers}
    if len(sizes) > 1:
        raise ValueError(f"the layers' own biases have several sizes, {sorted(sizes)}; attach to one model at a time")
    own = dict(zip(("num_buckets", "max_distance"), sizes.pop(), strict=True))
    for name, value in options.items():
        if value != own.get(name):
            raise ValueError(
                f"'wavlm' takes over the model's own bias, with {own}, got {name}={value!r}; leave it out, or attach "
                "another encoding, which is added to the own bias"
            )
    return own


@torch.no_grad()
def take_over(layers: Sequence[Any]) -> None:
    """Copy the own bias of a model's layers into their encodings.

    Args:
        layers: of one model, in their order, with a `WavLM` of `options_of` each at `encoding`.
    """
    table: Tensor | None = None
    for layer in layers:
        encoding = layer.encoding
        if table is None and layer.rel_attn_embed is not None:
            table = layer.rel_attn_embed.weight.T
        if table is not None:  # the layers before it have no bias
            encoding.table.copy_(table)
        encoding.gate.load_state_dict(layer.gru_rel_pos_linear.state_dict())
        encoding.constant.copy_(layer.gru_rel_pos_const.flatten())
