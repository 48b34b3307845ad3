"""A model's own tables of relative position biases moved into attached ones, and back."""

import pytest
import timm
import torch
from tests.plugins.timm.windowed import MODELS, images, make, size_of

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, give_bias_tables, resize, settings, take_bias_tables

VIT = {"img_size": (64, 96), "embed_dim": 48, "depth": 2, "num_heads": 3}
VITS = {
    "beit": ("beit_base_patch16_224", VIT, False),
    "beit, shared": (
        "beit_base_patch16_224",
        VIT | {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
        True,
    ),
    "relpos": ("vit_relpos_small_patch16_224", VIT | {"rel_pos_type": "bias"}, False),
    "relpos, class token": ("vit_relpos_base_patch16_cls_224", VIT | {"rel_pos_type": "bias"}, False),
    "relpos, shared": ("vit_srelpos_small_patch16_224", VIT | {"rel_pos_type": "bias"}, True),
}
OTHERS = (
    "swin",
    "swin, padded",
    "swin, head size",
    "maxvit",
    "maxvit, tf",
    "maxvit, parallel",
    "coatnet",
    "coatnet, tf",
)


def build(name):
    """The model, images for it, and whether its layers share a table."""
    if name in MODELS:
        return make(name), images(size_of(name)), False
    architecture, arguments, shared = VITS[name]
    torch.manual_seed(0)
    model = timm.create_model(architecture, num_classes=5, **arguments).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("bias_table"):
                parameter.normal_()
            elif "gamma" in key:
                parameter.fill_(1.0)
            elif parameter.ndim == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    return model, images((64, 96)), shared


def own_tables(model):
    return {key: value.clone() for key, value in model.named_parameters() if key.endswith("position_bias_table")}


@pytest.mark.parametrize("name", [*OTHERS, *VITS])
def test_taken_and_given_back(name):
    model, x, shared = build(name)
    own = own_tables(model)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        before = model(x)
        attach(model, "table", shared=shared)
        take_bias_tables(model)
        assert len(own) == len(encodings(model))
        assert all(not table.any() for table in own_tables(model).values())
        assert all(encoding.table.any() for encoding in encodings(model))
        torch.testing.assert_close(model(x), before, rtol=1e-6, atol=1e-6)
        written, weights = settings(model), model.state_dict()
        fresh = build(name)[0]
        attach(fresh, **written)
        fresh.load_state_dict(weights)
        assert torch.equal(fresh(x), model(x))

        give_bias_tables(model)
        assert all(torch.equal(table, own[key]) for key, table in own_tables(model).items())
        assert all(not encoding.table.any() for encoding in encodings(model))
        detach(model)
        assert torch.equal(model(x), before)
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["swin", "maxvit, tf", "beit", "relpos, shared"])
def test_an_attached_table_that_was_trained_becomes_the_models_own(name, train):
    model, x, shared = build(name)
    with torch.no_grad():
        before = model(x)
        attach(model, {"bias": "table"}, shared=shared)
        train(model)
        trained = model(x)
        assert (trained - before).abs().max() > 1e-3
        give_bias_tables(model)
        detach(model)
        torch.testing.assert_close(model(x), trained, rtol=1e-5, atol=2e-6)


def test_taken_tables_are_resized_with_patches_kept(train):
    """What a host's own resampling cannot: the same offsets keep their numbers in a larger window."""
    model, x, _ = build("swin, padded")
    attach(model, "table")
    take_bias_tables(model)
    before = model(x)
    resize(model, (6, 7))
    assert torch.equal(model(x), before)
    tables = [encoding.table.clone() for encoding in encodings(model)]
    with pytest.raises(ValueError, match=r"attached table is over Grid\(height=6.*the model's own over Grid\(height=3"):
        give_bias_tables(model)
    assert all(torch.equal(e.table, table) for e, table in zip(encodings(model), tables, strict=True))


@pytest.mark.parametrize("call", [take_bias_tables, give_bias_tables])
@pytest.mark.parametrize(
    ("name", "encoding", "arguments", "message"),
    [
        ("swin", "shaw", {}, "one 'table' without strength in each layer, got Shaw"),
        ("swin", {"a": "table", "b": "table"}, {}, "one 'table' without strength"),
        ("swin", rb.encodings.Table, {"strength": 0.5}, "one 'table' without strength"),
        ("swin", "table", {"grid": (8, 8)}, "over Grid.*the model's own over Grid.*`resize`"),
        ("swin", "table", {"shared": True}, "share an attached one; attach a table without sharing it"),
        ("beit, shared", "table", {}, "share a table of the model .* attach with shared=True"),
        ("swin v2", "table", {}, "swinv2_tiny_window8_256 has no table .*: a network makes its biases, at .*cpb_mlp"),
        ("swin v2 cr", "table", {}, "swinv2_cr_tiny_ns_224 has no table .*: a network makes its biases, at .*meta_mlp"),
        (
            "maxvit, mlp",
            "table",
            {},
            "maxvit_rmlp_pico_rw_256 has no table .*: a network makes its biases, at .*rel_pos",
        ),
        ("swin", None, {}, "has no encoding attached; call attach"),
    ],
)
def test_refusals_change_nothing(name, encoding, arguments, message, call):
    model, _, _ = build(name)
    if encoding is not None:
        attach(model, encoding, **arguments)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        call(model)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_a_model_without_biases_is_refused(make_vit):
    model = make_vit()
    attach(model, "table")
    with pytest.raises(ValueError, match=r"vit_tiny_patch16_224 has no table .*: its layers add none"):
        take_bias_tables(model)


def test_taken_tables_are_given_back_before_the_encodings_go():
    """Without it the model would lose what it had learned."""
    model, inputs, _ = build("swin")
    with torch.no_grad():
        before = model(inputs)
        attach(model, "table")
        take_bias_tables(model)
        with pytest.raises(ValueError, match=r"has its own bias tables in the encodings.* give_bias_tables"):
            detach(model)
        give_bias_tables(model)
        detach(model)
        torch.testing.assert_close(model(inputs), before, rtol=0, atol=1e-6)


def test_taken_into_tables_that_have_learned(train):
    model, x, _ = build("beit")
    attach(model, "table")
    train(model)
    with torch.no_grad():
        before = model(x)
        take_bias_tables(model)
        torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-5)
