"""Settings and weights rebuild a model."""

import json

import pytest
import torch
import torchaudio
from tests.plugins.torchaudio.hosts import LENGTHS, clips, make, padded
from torchaudio.pipelines import Wav2Vec2Bundle
from torchaudio.pipelines._wav2vec2 import utils

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.torchaudio import attach, settings

SEQUENCE = {"name": "Sequence", "max_distance": None}


@pytest.mark.parametrize("name", ["hubert", "wavlm large"])
@pytest.mark.parametrize(
    ("encoding", "options", "written"),
    [
        ("t5", {}, {"encoding": "t5", "relation": SEQUENCE}),
        (rb.encodings.Shaw, {"max_distance": 2}, {"encoding": "shaw", "relation": SEQUENCE, "max_distance": 2}),
        ("wavlm", {"num_buckets": 320}, None),
        ({"a": "t5", "b": "rope"}, {}, {"encoding": {"a": "t5", "b": "rope"}, "relation": SEQUENCE}),
        (
            "table",
            {"relation": {"name": "Sequence", "max_distance": 8}, "strength": 0.5},
            {"encoding": "table", "relation": {"name": "Sequence", "max_distance": 8}, "strength": 0.5},
        ),
    ],
)
@torch.no_grad()
def test_settings_and_weights_rebuild_a_model(name, train, encoding, options, written):
    if written is None:
        own = {"max_distance": 800} if "wavlm" in name else {}
        written = {"encoding": "wavlm", "relation": SEQUENCE, "num_buckets": 320, **own}
    model, fresh = make(name), make(name)
    attach(model, encoding, **options)
    train(model)
    assert settings(model) == written
    attach(fresh, **json.loads(json.dumps(settings(model))))
    assert settings(fresh) == written
    assert (fresh(clips())[0] - model(clips())[0]).abs().max() > 1e-3
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(fresh(padded(), LENGTHS)[0], model(padded(), LENGTHS)[0])


def test_of_resized_tables(model):
    attach(model, "table", relation=rb.relations.Sequence(4))
    first, second = encodings(model)
    first.resize(rb.relations.Sequence(6))
    with pytest.raises(ValueError, match=r"several relations, .*; resize all to the same"):
        settings(model)
    second.resize(rb.relations.Sequence(6))
    assert settings(model)["relation"] == {"name": "Sequence", "max_distance": 6}


def test_of_an_object_are_refused(model):
    attach(model, rb.create_encoding("t5", 3, 8))
    assert len(encodings(model)) == 1
    with pytest.raises(ValueError, match="cannot be written down; attach one by name"):
        settings(model)


@pytest.mark.slow
def test_every_bundle():
    """Without storage for their weights."""
    bundles = {name: getattr(torchaudio.pipelines, name) for name in dir(torchaudio.pipelines)}
    bundles = {name: bundle for name, bundle in bundles.items() if isinstance(bundle, Wav2Vec2Bundle)}
    assert len(bundles) >= 30
    architectures = {str(bundle._params | {"aux_num_out": None}): (name, bundle) for name, bundle in bundles.items()}
    for name, bundle in architectures.values():  # each once, whatever it was trained on
        with torch.device("meta"):
            model = utils._get_model(bundle._model_type, bundle._params)
        attach(model, "wavlm" if "WAVLM" in name else "t5")
        assert len(encodings(model)) == bundle._params["encoder_num_layers"]


@pytest.mark.slow
def test_compiles_in_one_graph():
    model = make("wavlm large")
    attach(model, "t5")
    with torch.no_grad():
        wanted = model(padded(), LENGTHS)[0]
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(padded(), LENGTHS)[0], wanted)
