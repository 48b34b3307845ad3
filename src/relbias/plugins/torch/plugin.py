"""Attach relative encodings to modules that use nn.MultiheadAttention, detach them and describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from relbias.encodings import Encoding, EncodingSpec
from relbias.plugins import engine
from relbias.plugins.grids import parts
from relbias.plugins.relations import as_relation, describe_relation
from relbias.plugins.torch.attention import RelativeMultiheadAttention, UnnestedTransformerEncoder, index_of
from relbias.relations import Grid, Relation, Sequence


def attach(
    model: nn.Module,
    encoding: EncodingSpec | Encoding,
    *,
    relation: Relation | Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Give every nn.MultiheadAttention that attends to itself a relative encoding, in place.

    The modules keep the conventions of nn.MultiheadAttention: its arguments, its tuple of results, `batch_first`, and
    boolean masks that are True at what is blocked. A query whose every key is masked gets 0 where torch gives NaN.

    The output stays what it was until training moves the encoding: exactly in eval mode without gradients, on CPU in
    float32, else up to rounding. There nn.TransformerEncoder has a fused inference of its own, which knows no
    encodings and is off while they are attached; the output is exactly that of the encoder without it
    (torch.backends.mha.set_fastpath_enabled(False)) and that of the fused one up to rounding, except at padding,
    where the fused one may give 0. Parameters keep their names; new ones are at `<attention>.encoding.*`. Give the
    optimizer the new parameters: attach before building it.

    Left as they are: the cross-attention of nn.TransformerDecoderLayer, modules whose `kdim` or `vdim` is not
    `embed_dim`, subclasses of nn.MultiheadAttention, and those in torchaudio's WavLM, which only hold weights. Any
    other module that is called with a key that is not its query raises a ValueError then, since nothing is known of
    the distance between two sequences. Code that takes the weights out of an attention module, instead of calling it,
    passes the encoding by.

    Args:
        model: any module, such as nn.TransformerEncoder, nn.Transformer, torchaudio's Conformer or PyG's GPSConv; or
            an nn.MultiheadAttention.
        encoding: a name, a mapping of names whose terms are summed, a callable that is given (num_heads, head_dim,
            relation), built once per module; or an encoding already built, which is set to zero and shared by all.
        relation: a Sequence, or a Grid with as many tokens as every call has; or such a one in plain values, as in
            `settings`. That of an encoding already built, else Sequence(), by default.
        **options: of the encoding.

    Raises:
        ValueError: there is nothing to attach to, an encoding is attached already, or the encoding or its relation
            does not suit. The model is then as it was.

    Example:
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(64, nhead=4, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, num_layers=2)
        >>> attach(model, encoding="shaw", max_distance=8)
        >>> model.layers[0].self_attn.encoding
        Shaw(num_heads=4, head_dim=16, relation=Sequence(max_distance=None))
        >>> model(torch.zeros(1, 10, 64)).shape
        torch.Size([1, 10, 64])
    """
    engine.check_free(model)
    attentions = _find(model)
    encoders = _find_encoders(model, attentions)
    if relation is not None:
        relation = as_relation(relation)
    elif isinstance(encoding, Encoding):
        own = encoding.relation
        relation = next(iter(own.values())) if isinstance(own, Mapping) else own
    else:
        relation = Sequence()
    if not isinstance(relation, Sequence | Grid):
        raise ValueError(
            f"{relation!r} needs an index with every call, which users of nn.MultiheadAttention do not hand down; "
            "attach over a Sequence or a Grid"
        )
    engine.attach(
        model,
        [
            engine.Site(
                module,
                RelativeMultiheadAttention,
                module.num_heads,
                module.head_dim,
                module.in_proj_weight,
                relation,
            )
            for module in attentions
        ],
        encoding,
        trial_index=lambda candidate: index_of(candidate.relation),
        classes=dict.fromkeys(encoders, UnnestedTransformerEncoder),
        settings={"relation": describe_relation(relation)},
        options=options,
    )


def detach(model: nn.Module) -> None:
    """Undo `attach`, in place: the model is what it was, without the encodings and what they learned.

    Args:
        model: given to `attach` before.

    Raises:
        ValueError: nothing is attached.
    """
    engine.detach(model)


def settings(model: nn.Module) -> dict[str, Any]:
    """What `attach` needs to give an equal model the same encodings: `attach(fresh, **settings)`, then load weights.

    Args:
        model: given to `attach` before.

    Returns:
        A dict of plain values, to be kept beside the checkpoint, as JSON for example.

    Raises:
        ValueError: nothing is attached, the encoding was given as an object or a function, or only some of the
            encodings were resized.

    Example:
        >>> import torch
        >>> model = torch.nn.TransformerEncoderLayer(64, nhead=4, batch_first=True)
        >>> attach(model, encoding="t5", max_distance=64)
        >>> settings(model)
        {'encoding': 't5', 'relation': {'name': 'Sequence', 'max_distance': None}, 'max_distance': 64}
    """
    written = engine.settings(model)
    relations = list(dict.fromkeys(part.relation for part in parts(engine.encodings(model))))
    if len(relations) > 1:
        raise ValueError(
            f"the encodings are over several relations, {', '.join(map(repr, relations))}; resize all to the same"
        )
    return written | {"relation": describe_relation(relations[0])}  # as it is now: a table may have been resized


def _find(model: nn.Module) -> list[nn.MultiheadAttention]:
    """The attention modules that get an encoding, or the reason why there are none."""
    name = type(model).__name__
    idle = _idle(model)
    modules = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention) and m not in idle]
    if any(isinstance(module, RelativeMultiheadAttention) for module in modules):
        raise ValueError(f"{name} has an encoding attached inside; call detach on the module that `attach` was given")
    if not modules:
        if idle:
            raise ValueError(
                f"{name} has nn.MultiheadAttention only inside WavLMSelfAttention, which takes the weights and never "
                "calls it; use relbias.plugins.torchaudio"
            )
        raise ValueError(f"{name} has no nn.MultiheadAttention inside; {_advice(model)}")
    torchs = [module for module in modules if type(module) is nn.MultiheadAttention]
    if not torchs:
        classes = ", ".join(sorted({type(module).__name__ for module in modules}))
        raise ValueError(
            f"{name} attends by {classes}, a subclass of nn.MultiheadAttention whose own ways are not known here; "
            "only nn.MultiheadAttention itself is supported"
        )
    cross = {layer.multihead_attn for layer in model.modules() if isinstance(layer, nn.TransformerDecoderLayer)}
    found = [module for module in torchs if module not in cross and module.kdim == module.vdim == module.embed_dim]
    if not found:
        raise ValueError(f"{name} has cross-attention only, which has no default relation; there is nothing to attach")
    refuse_added_keys(name, found)
    return found


def _advice(model: nn.Module) -> str:
    if type(model).__module__.startswith("timm."):
        return "use relbias.plugins.timm"
    if any(type(module).__module__.startswith("torchaudio.models.wav2vec2.") for module in model.modules()):
        return "use relbias.plugins.torchaudio"
    return "there is nothing to attach to"


def _idle(model: nn.Module) -> set[nn.Module]:
    """What is inside torchaudio's WavLM attention: its nn.MultiheadAttention only holds weights."""
    return {
        inside
        for module in model.modules()
        if any(cls.__module__ == "torchaudio.models.wav2vec2.wavlm_attention" for cls in type(module).__mro__)
        for inside in module.modules()
    }


def refuse_added_keys(name: str, attentions: list[nn.MultiheadAttention]) -> None:
    """Refuse attention that adds keys of its own.

    Args:
        name: of the model.
        attentions: in it.

    Raises:
        ValueError: one does.
    """
    added = {"add_bias_kv": any(module.bias_k is not None for module in attentions)}
    added["add_zero_attn"] = any(module.add_zero_attn for module in attentions)
    for option, given in added.items():
        if given:
            raise ValueError(
                f"{name} has an nn.MultiheadAttention with {option}=True, which adds a key that is no token and has "
                "no place in a relation; build it without"
            )


def _find_encoders(model: nn.Module, attentions: list[nn.MultiheadAttention]) -> list[nn.TransformerEncoder]:
    """The encoders around the attention modules that may turn padded input into nested tensors."""
    found = []
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and not set(attentions).isdisjoint(module.modules()):
            if type(module) is nn.TransformerEncoder:
                found.append(module)
            elif module.use_nested_tensor:
                raise ValueError(
                    f"{type(module).__name__}, a subclass of nn.TransformerEncoder, may turn padded input into nested "
                    "tensors, which an encoding does not take; build it with enable_nested_tensor=False"
                )
    return found
