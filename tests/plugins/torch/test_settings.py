"""Settings and weights rebuild a model."""

import io
import json

import pytest
import torch
from tests.plugins.torch.hosts import make
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import remove_parametrizations

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.torch import attach, detach, settings


@pytest.mark.parametrize(
    ("encoding", "options", "written"),
    [
        ("t5", {}, {"encoding": "t5", "relation": {"name": "Sequence", "max_distance": None}}),
        (
            "table",
            {"relation": rb.relations.Sequence(8), "strength": 0.5},
            {"encoding": "table", "relation": {"name": "Sequence", "max_distance": 8}, "strength": 0.5},
        ),
        (
            rb.encodings.Shaw,
            {"max_distance": 2},
            {"encoding": "shaw", "relation": {"name": "Sequence", "max_distance": None}, "max_distance": 2},
        ),
        (
            {"a": "table", "b": "rope_axial"},
            {"relation": rb.relations.Grid(2, 4, 1)},
            {
                "encoding": {"a": "table", "b": "rope_axial"},
                "relation": {"name": "Grid", "height": 2, "width": 4, "prefix_tokens": 1, "max_distance": None},
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_and_weights_rebuild_a_model(train, encoding, options, written):
    model, call = make("encoder")
    attach(model, encoding, **options)
    train(model)
    assert settings(model) == written
    fresh, _ = make("encoder")
    attach(fresh, **json.loads(json.dumps(settings(model))))
    assert settings(fresh) == written
    with torch.no_grad():
        assert (call(fresh) - call(model)).abs().max() > 1e-3
        fresh.load_state_dict(model.state_dict(), strict=True)
        assert torch.equal(call(fresh), call(model))


def test_settings_of_an_object_are_refused():
    model, _ = make("encoder")
    attach(model, rb.create_encoding("t5", 4, 8))
    with pytest.raises(ValueError, match="cannot be written down; attach one by name"):
        settings(model)


def test_state_dict_keeps_the_names_of_the_host(host):
    model, _ = host
    before = set(model.state_dict())
    plain = {key: value.clone() for key, value in model.state_dict().items()}
    attach(model, "t5")
    new = set(model.state_dict()) - before
    assert before < set(model.state_dict())
    assert all(key.endswith(".encoding.table") for key in new)
    with pytest.raises(RuntimeError, match=r"Missing key.*\.encoding\.table"):
        model.load_state_dict(plain)
    model.load_state_dict(plain, strict=False)


def test_whole_model_can_be_saved(host, train):
    model, call = host
    attach(model, "shaw")
    train(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    with torch.no_grad():
        assert torch.equal(call(loaded), call(model))
    detach(loaded)


class PassesOn(nn.Module):
    """A wrapper whose attributes are those of what it wraps, as in PEFT."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


@pytest.mark.parametrize("wrap", [lambda model: torch.compile(model, backend="eager"), PassesOn])
@pytest.mark.parametrize("wrapped_first", [False, True])
def test_a_wrapped_model(wrap, wrapped_first):
    model, _ = make("encoder")
    classes = [type(module) for module in model.modules()]
    outer = wrap(model)
    attach(outer if wrapped_first else model, "t5")
    assert settings(outer)["encoding"] == "t5"
    assert len(encodings(outer)) == 2
    detach(outer)
    assert [type(module) for module in model.modules()] == classes
    assert not any("encoding" in name for name in outer.state_dict())
    for either in (outer, model):
        with pytest.raises(ValueError, match="no encoding attached"):
            settings(either)


def test_a_class_that_was_changed_since_is_changed_back_first():
    model, call = make("encoder")
    with torch.no_grad():
        attach(model, "t5")
        wanted, attention = call(model), model.layers[1].self_attn
        weight_norm(attention, "in_proj_weight")
        torch.testing.assert_close(call(model), wanted)
        with pytest.raises(ValueError, match=r"a ParametrizedRelativeMultiheadAttention inside.*undo that first"):
            detach(model)
        torch.testing.assert_close(call(model), wanted)
        remove_parametrizations(attention, "in_proj_weight")
        detach(model)
        assert {type(layer.self_attn) for layer in model.layers} == {nn.MultiheadAttention}
        torch.testing.assert_close(call(model), wanted)


@pytest.mark.parametrize("encoding", ["table", {"a": "table", "b": "rope_axial"}])
def test_resized_tables_have_settings_of_their_size(encoding):
    def host():
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2).eval()

    grid, x = rb.relations.Grid(3, 3), torch.randn(2, 9, 32)
    model, fresh = host(), host()
    attach(model, encoding, relation=rb.relations.Grid(2, 2))
    first, second = encodings(model)
    keys = dict.fromkeys(encoding, grid) if isinstance(encoding, dict) else grid
    first.resize(keys)
    with pytest.raises(
        ValueError, match=r"several relations, Grid\(height=3.*Grid\(height=2.*; resize all to the same"
    ):
        settings(model)
    second.resize(keys)
    attach(fresh, **settings(model))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))
