"""Attach relative encodings to torchaudio's wav2vec 2.0, HuBERT and WavLM, detach them and describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from relbias._extras import extra
from relbias.encodings import Encoding, EncodingSpec
from relbias.plugins import engine
from relbias.plugins.grids import parts
from relbias.plugins.relations import as_relation, describe_relation
from relbias.plugins.torch.attention import index_of
from relbias.plugins.torchaudio.attention import (
    ImportedWavLMSelfAttention,
    RelativeSelfAttention,
    RelativeWavLMSelfAttention,
)
from relbias.plugins.torchaudio.gated_bias import is_wavlm, options_of, take_over
from relbias.plugins.torchaudio.lengths import swapped_classes
from relbias.relations import Sequence

with extra("audio"):
    from torchaudio.models import Conformer, Emformer
    from torchaudio.models.wav2vec2.components import SelfAttention, Transformer
    from torchaudio.models.wav2vec2.wavlm_attention import WavLMSelfAttention

_EMFORMER = (
    "an Emformer, whose queries are frames, copies of frames to their right and summaries, and whose keys are "
    "memories too: they have no one distance; build a Conformer instead"
)


def attach(
    model: nn.Module,
    encoding: EncodingSpec | Encoding,
    *,
    relation: Sequence | Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Give every attention layer of wav2vec 2.0, HuBERT or WavLM a relative encoding of the frames, in place.

    The output stays what it was until training moves the encoding: exactly in eval mode without gradients, on CPU in
    float32, as long as the mask of a layer has up to 2^20 numbers, else up to rounding. Parameters keep their names;
    new ones are at `<layer>.attention.encoding.*`. Give the optimizer the new parameters: attach before building it.

    WavLM keeps its own gated bias, to which the encoding is added; "wavlm" takes it over instead, table and gates
    copied into each layer's encoding, and the model's own are left out, untouched, until `detach`. With "none" a
    WavLM merely gets what follows.

    With `lengths` every item of a batch is what it is alone: they also reach WavLM's attention, with which
    torchaudio's fails, and the norms over time, which in torchaudio run over the padding (the group norm of the base
    models) or over the whole batch (the normalisation of the samples in some bundles). Without `lengths` nothing of
    this differs.

    Args:
        model: torchaudio.models.Wav2Vec2Model, what a bundle of torchaudio.pipelines returns, HuBERTPretrainModel, or
            any module with such inside.
        encoding: a name, a mapping of names whose terms are summed, a callable that is given (num_heads, head_dim,
            relation), built once per layer; or an encoding already built, which is set to zero and shared by all.
        relation: a Sequence, or such a one in plain values, as in `settings`. That of an encoding already built, else
            Sequence(), by default.
        **options: of the encoding.

    Raises:
        ValueError: there is nothing to attach to, an encoding is attached already, or the encoding or its relation
            does not suit. The model is then as it was.

    Example:
        >>> import torch, torchaudio
        >>> layers = {"encoder_num_layers": 1, "encoder_embed_dim": 64, "encoder_num_heads": 4}
        >>> sizes = {"encoder_ff_interm_features": 64, "encoder_pos_conv_kernel": 8, "encoder_pos_conv_groups": 4}
        >>> model = torchaudio.models.wavlm_model(
        ...     "group_norm", [(32, 10, 5), (32, 8, 4)], False, aux_num_out=None,
        ...     encoder_projection_dropout=0.0, encoder_attention_dropout=0.0, encoder_ff_interm_dropout=0.0,
        ...     encoder_dropout=0.0, encoder_layer_norm_first=False, encoder_layer_drop=0.0, **layers, **sizes,
        ...     encoder_num_buckets=320, encoder_max_distance=800,
        ... ).eval()
        >>> attach(model, "wavlm")
        >>> model.encoder.transformer.layers[0].attention.encoding.table.shape
        torch.Size([4, 320])
        >>> model(torch.zeros(2, 4000), lengths=torch.tensor([4000, 2000]))[1]
        tensor([198,  98])
    """
    engine.check_free(model)
    layers = _find(model)
    given = _relation_of(encoding, relation)
    wavlms = [layer for layer in layers if isinstance(layer, WavLMSelfAttention)]
    imports = is_wavlm(encoding) and bool(wavlms)
    if imports:
        options = options_of(wavlms, options)
    engine.attach(
        model,
        [_site(layer, given, imports) for layer in layers],
        encoding,
        trial_index=lambda candidate: index_of(candidate.relation),
        classes=swapped_classes(model),
        settings={"relation": describe_relation(given)},
        options=options,
    )
    if imports:
        for transformer in _transformers(model):
            own = [layer.attention for layer in transformer.layers]
            take_over([layer for layer in own if isinstance(layer, WavLMSelfAttention)])


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
        >>> from torchaudio.models.wav2vec2.components import _get_encoder
        >>> encoder = _get_encoder(8, 16, 0.0, 4, 2, 1, 2, 0.0, 16, 0.0, 0.0, False, 0.0)
        >>> attach(encoder, "shaw", max_distance=64)
        >>> settings(encoder)
        {'encoding': 'shaw', 'relation': {'name': 'Sequence', 'max_distance': None}, 'max_distance': 64}
    """
    written = engine.settings(model)
    relations = list(dict.fromkeys(part.relation for part in parts(engine.encodings(model))))
    if len(relations) > 1:
        raise ValueError(
            f"the encodings are over several relations, {', '.join(map(repr, relations))}; resize all to the same"
        )
    return written | {"relation": describe_relation(relations[0])}  # as it is now: a table may have been resized


def _relation_of(encoding: Any, relation: Any) -> Sequence:
    if relation is not None:
        given = as_relation(relation)
    elif isinstance(encoding, Encoding):
        own = encoding.relation
        given = next(iter(own.values())) if isinstance(own, Mapping) else own
    else:
        given = Sequence()
    if not isinstance(given, Sequence):
        raise ValueError(f"the frames of audio are a Sequence, got {given!r}")
    return given


def _site(layer: Any, relation: Sequence, imports: bool) -> engine.Site:
    if isinstance(layer, WavLMSelfAttention):
        swapped = ImportedWavLMSelfAttention if imports else RelativeWavLMSelfAttention
        weight = layer.attention.in_proj_weight
    else:
        swapped, weight = RelativeSelfAttention, layer.q_proj.weight
    return engine.Site(layer, swapped, layer.num_heads, layer.head_dim, weight, relation)


def _transformers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, Transformer)]


def _find(model: nn.Module) -> list[Any]:
    """The attention of every layer, or the reason why there is none that can have an encoding."""
    name = type(model).__name__
    layers = [layer.attention for transformer in _transformers(model) for layer in transformer.layers]
    if not layers:
        raise ValueError(f"{name} has no wav2vec 2.0, HuBERT or WavLM inside; {_advice(model)}")
    for layer in layers:
        if hasattr(type(layer), "host_class"):
            raise ValueError(
                f"{name} has an encoding attached inside; call detach on the module that `attach` was given"
            )
        if type(layer) not in (SelfAttention, WavLMSelfAttention):
            raise ValueError(f"{name} attends by {type(layer).__name__}, whose own ways are not known here")
        if isinstance(layer, WavLMSelfAttention) and not layer.gru_rel_pos:
            raise ValueError(f"{name} has a WavLM whose bias has no gates; build it with gru_rel_pos=True")
    return layers


def _advice(model: nn.Module) -> str:
    modules = list(model.modules())
    if any(isinstance(module, Emformer) for module in modules):
        return f"it has {_EMFORMER}"
    if any(isinstance(module, Conformer) for module in modules):
        return "use relbias.plugins.torch for the Conformer, which attends by nn.MultiheadAttention"
    inside = any(isinstance(module, SelfAttention | WavLMSelfAttention) for module in modules)
    return "attach to the whole model" if inside else "there is nothing to attach to"
