"""The weights of torchaudio's Conformer under the names that they have in ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

_NAMES = {
    "mlp1": "ffn1.sequential",
    "norm_attention": "self_attn_layer_norm",
    "attention.out_proj": "self_attn.out_proj",
    "convolution.norm_input": "conv_module.layer_norm",
    "convolution.expand": "conv_module.sequential.0",
    "convolution.depthwise": "conv_module.sequential.2",
    "convolution.norm": "conv_module.sequential.3",
    "convolution.project": "conv_module.sequential.5",
    "mlp2": "ffn2.sequential",
    "norm": "final_layer_norm",
}
"""Of a block: the name in ours and in torchaudio's."""


def from_torchaudio(theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of our Conformer with the weights of torchaudio's, and our own encodings.

    Args:
        theirs: torchaudio's state dict.
        ours: our model's state dict.

    Returns:
        A state dict of our model.

    Raises:
        ValueError: it is of another model or of other sizes.
    """
    taken, used = {}, set()
    for name, value in ours.items():
        if ".encoding." in name or name.startswith("position."):
            taken[name] = value
            continue
        their_name, part = _their_name(name)
        if their_name not in theirs:
            raise ValueError(f"the weights are not those of a torchaudio Conformer like this one: no {their_name}")
        weight = theirs[their_name]
        if part is not None:
            weight = weight.chunk(3)[part]
        if weight.ndim == value.ndim + 1 and weight.shape[-1] == 1:
            weight = weight.squeeze(-1)  # a convolution of one frame is a linear map
        if weight.shape != value.shape:
            raise ValueError(
                f"{their_name} has the shape {tuple(theirs[their_name].shape)} and this model's part of it "
                f"{tuple(value.shape)}; build the Conformer with the sizes of torchaudio's"
            )
        used.add(their_name)
        taken[name] = weight
    others = sorted(theirs.keys() - used)
    if others:
        raise ValueError(f"this model has no place for {others[0]}; build it with as many layers and the same norm")
    return taken


def _their_name(name: str) -> tuple[str, int | None]:
    """Torchaudio's name for one of ours, and which third of it is meant, if any."""
    _, number, rest = name.split(".", 2)
    start = f"conformer_layers.{number}."
    projection = re.fullmatch(r"attention\.([qkv])_proj\.(weight|bias)", rest)
    if projection:
        return f"{start}self_attn.in_proj_{projection[2]}", "qkv".index(projection[1])
    ours = max((prefix for prefix in _NAMES if rest.startswith(f"{prefix}.")), key=len)
    return start + _NAMES[ours] + rest[len(ours) :], None
