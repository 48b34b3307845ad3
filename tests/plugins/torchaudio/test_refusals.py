"""What cannot be attached is refused in one line and leaves the model as it was."""

import pytest
import torch
import torchaudio
from tests.plugins.torch.test_refusals import same, snapshot
from tests.plugins.torchaudio.hosts import inner, layers, make
from torch import nn
from torchaudio.models.wav2vec2.components import SelfAttention

import relbias as rb
from relbias.plugins.torchaudio import attach, detach, settings

HOPS = rb.relations.Hops(4)
GRID = rb.relations.Grid(4, 12)


@pytest.mark.parametrize(
    ("encoding", "options", "message"),
    [
        ("table", {}, "'table' needs a relation with a limited number of codes"),
        ("rope_axial", {}, "'rope_axial' takes the relation Grid or Volume, got Sequence"),
        ("sinusoidal", {}, "'sinusoidal' is applied at the input"),
        ("alibi", {"variant": "causal"}, "cannot start as zero"),
        ("t6", {}, "there is no encoding 't6'"),
        ("shaw", {"max_distanze": 3}, "did you mean 'max_distance'"),
        ("wavlm", {"num_bukkets": 3}, "'wavlm' takes over the model's own bias"),
        ("cope", {}, "'cope'.*q_proj"),
        ("table", {"relation": GRID}, r"the frames of audio are a Sequence, got Grid\("),
        ("table", {"relation": HOPS}, r"the frames of audio are a Sequence, got Hops\("),
        (rb.create_encoding("table", 3, 8, HOPS), {}, r"the frames of audio are a Sequence, got Hops\("),
        (rb.create_encoding("t5", 2, 8), {}, "built for 2 heads"),
        ("table", {"relation": {"name": "Sequenze"}}, "a relation's name is one of Sequence"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_refused_encodings_change_nothing(wavlm, encoding, options, message):
    before = snapshot(wavlm)
    with pytest.raises(ValueError, match=message) as caught:
        attach(wavlm, encoding, **options)
    assert "\n" not in str(caught.value)
    assert same(snapshot(wavlm), before)
    attach(wavlm, "t5")


def emformer():
    return torchaudio.models.Emformer(16, 2, 16, 1, segment_length=4)


def conformer():
    return torchaudio.models.Conformer(16, 2, 16, 1, 3)


class OwnAttention(SelfAttention):
    pass


def own_attention():
    model = make("hubert")
    layers(model)[0].__class__ = OwnAttention
    return model


def without_gates():
    model = make("wavlm")
    layers(model)[1].gru_rel_pos = False
    return model


@pytest.mark.parametrize(
    ("make_model", "message"),
    [
        (emformer, "Emformer has no wav2vec 2.0, HuBERT or WavLM inside; .* memories too: they have no one distance"),
        (lambda: nn.Sequential(emformer()), "Sequential has no .* an Emformer, whose queries"),
        (conformer, "use relbias.plugins.torch for the Conformer, which attends by nn.MultiheadAttention"),
        (lambda: nn.Linear(2, 2), "Linear has no wav2vec 2.0, HuBERT or WavLM inside; there is nothing to attach to"),
        (lambda: inner(make("wavlm")).encoder.transformer.layers, "ModuleList has .*; attach to the whole model"),
        (own_attention, "Wav2Vec2Model attends by OwnAttention, whose own ways are not known here"),
        (without_gates, "Wav2Vec2Model has a WavLM whose bias has no gates"),
    ],
)
def test_refused_models_stay_as_they_were(make_model, message):
    model = make_model()
    before = snapshot(model)
    with pytest.raises(ValueError, match=message) as caught:
        attach(model, "t5")
    assert "\n" not in str(caught.value)
    assert same(snapshot(model), before)


def test_once_at_a_time(model):
    attach(model, "t5")
    with pytest.raises(ValueError, match="has an encoding attached; call detach"):
        attach(model, "t5")
    for around in (nn.Sequential(model), inner(model).encoder):
        with pytest.raises(ValueError, match="has an encoding attached inside; call detach on the module"):
            attach(around, "t5")
    detach(model)
    for undo in (detach, settings):
        with pytest.raises(ValueError, match="has no encoding attached; call attach"):
            undo(model)


def test_multihead_attention_that_only_holds_weights_is_no_site(wavlm):
    """WavLM keeps its projections in an nn.MultiheadAttention that is never called: an encoding there would be mute."""
    for refused in (wavlm, layers(wavlm)[0]):
        before = snapshot(refused)
        with pytest.raises(ValueError, match=r"WavLMSelfAttention.*use relbias\.plugins\.torchaudio"):
            rb.plugins.torch.attach(refused, "t5")
        assert same(snapshot(refused), before)


def test_wav2vec2_is_sent_here_by_the_plugin_for_torch():
    with pytest.raises(ValueError, match=r"no nn.MultiheadAttention inside; use relbias\.plugins\.torchaudio"):
        rb.plugins.torch.attach(make("hubert"), "t5")


def test_conformer_has_its_encoding_by_the_plugin_for_torch():
    model = conformer().eval()
    x, lengths = torch.randn(2, 9, 16), torch.tensor([9, 6])
    before = model(x, lengths)[0]
    rb.plugins.torch.attach(model, "transformer_xl")
    torch.testing.assert_close(model(x, lengths)[0][1, :6], before[1, :6])


@torch.no_grad()
def test_each_plugin_has_its_part_of_a_model(wavlm):
    """That for torch leaves WavLM's idle modules alone, and either can come first."""
    head = nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 3, 32, batch_first=True), 1)
    for first, second in ((rb.plugins.torch, rb.plugins.torchaudio), (rb.plugins.torchaudio, rb.plugins.torch)):
        model = nn.ModuleDict({"host": wavlm, "head": head})
        before = snapshot(model)
        first.attach(model if first is rb.plugins.torch else wavlm, "t5")
        second.attach(model if second is rb.plugins.torch else wavlm, "t5")
        named = [name for name, module in model.named_modules() if isinstance(module, rb.Encoding)]
        assert [name.rpartition("layers.")[2] for name in named] == [
            "0.attention.encoding",
            "1.attention.encoding",
            "0.self_attn.encoding",
        ]
        first.detach(model if first is rb.plugins.torch else wavlm)
        second.detach(model if second is rb.plugins.torch else wavlm)
        assert same(snapshot(model), before)
