"""What holds for every model that attends in windows, partitions or whole maps, whatever its family."""

import copy

import pytest
import timm
import torch
from tests.plugins.timm.windowed import EVERY, MODELS, add_by_hand, attentions, images, make, set_fused, size_of

from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, settings

ENCODINGS = ("table", "swin_v2", "irpe", "shaw", "alibi", "rope_axial", "rope_mixed", {"a": "table", "b": "shaw"})


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("fused", [True, False])
def test_exactly_unchanged_until_moved_and_after_detach(name, train, fused):
    model, x = make(name), images(size_of(name))
    set_fused(model, fused)
    keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
    with torch.no_grad():
        before = model(x)
        # Without fused attention they differ in nothing that an encoding decides.
        for encoding in ENCODINGS if fused else ("table", "rope_mixed"):
            attach(model, encoding)
            assert (model(x) - before).abs().max() == 0.0, encoding
            train(model)
            assert (model(x) - before).abs().max() > 3e-5, encoding
            detach(model)
        assert (model(x) - before).abs().max() == 0.0
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == classes


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("fused", [True, False])
def test_same_as_the_models_own_bias(name, train, bias_mask, fused):
    model, plain, x = make(name), make(name), images(size_of(name))
    attach(model, "table")
    train(model)
    found = encodings(model)
    assert [(e.relation.height, e.relation.width) for e in found] == [grid for _, grid in attentions(plain)]
    add_by_hand(plain, bias_mask, found)
    set_fused(model, fused)
    set_fused(plain, fused)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("encoding", ["table", "irpe", "rope_axial"])
def test_first_step_moves_every_layer(name, encoding):
    model, x = make(name), images(size_of(name))
    before = model(x)
    attach(model, encoding)
    out = model(x)
    assert (out - before).abs().max() <= 1e-6 * max(1.0, float(before.detach().abs().max()))
    out.square().sum().backward()
    attached = encodings(model)
    assert len(attached) >= 2
    for layer in attached:
        assert any(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


@pytest.mark.parametrize("name", EVERY)
def test_checkpointing_copies_and_state(name, train):
    model, x = make(name), images(size_of(name))
    attach(model, "table")
    train(model)
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        calls = []
        handle = encodings(model)[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        model.zero_grad()
        out = model(x)
        out.square().sum().backward()
        handle.remove()
        assert len(calls) == 1 + enable
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)

    copied, fresh = copy.deepcopy(model), make(name)
    attach(fresh, **settings(model))
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(copied(x), out)
    assert torch.equal(fresh(x), out)
    detach(copied)
    copied.load_state_dict(make(name).state_dict(), strict=True)
    assert (copied(x) - out).abs().max() > 1e-3
    assert torch.equal(model(x), out)

    decay_free = model.no_weight_decay()
    assert {key for key, _ in model.named_parameters() if ".encoding." in key} <= decay_free

    final, between = model.forward_intermediates(x)
    assert len(between) >= 2
    assert torch.equal(model.forward_head(final), out)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(model(x)).all()


@pytest.mark.parametrize("name", ["swin", "swin v2", "swin v2 cr", "maxvit", "coatnet"])
def test_features_only(name, train):
    """Timm takes such a model apart: only its stages are left."""
    model, x = make(name), images(size_of(name))
    architecture, arguments = MODELS[name]
    features = timm.create_model(architecture, features_only=True, **arguments).eval()
    weights = {key.replace("layers_", "layers.").replace("stages_", "stages."): key for key in features.state_dict()}
    features.load_state_dict({weights[key]: value for key, value in model.state_dict().items() if key in weights})
    with torch.no_grad():
        before = features(x)
        attach(model, "table")
        attach(features, "table")
        for found, wanted in zip(features(x), before, strict=True):
            assert torch.equal(found, wanted)
        train(model)
        train(features)
        for found, wanted in zip(features(x), model.forward_intermediates(x, intermediates_only=True), strict=True):
            found = found.permute(0, 3, 1, 2) if found.shape[1] != wanted.shape[1] else found
            torch.testing.assert_close(found, wanted)
        assert settings(features) == settings(model)
        detach(features)
        for found, wanted in zip(features(x), before, strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", EVERY)
def test_meta_device(name, train):
    architecture, arguments = MODELS[name]
    with torch.device("meta"):
        model = timm.create_model(architecture, num_classes=5, **arguments)
    attach(model, "table")
    assert all(encoding.table.is_meta for encoding in encodings(model))
    filled, x = make(name), images(size_of(name))
    attach(filled, "table")
    train(filled)
    model.to_empty(device="cpu").eval()
    for module in model.modules():
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    model.load_state_dict(filled.state_dict(), strict=True)
    assert torch.equal(model(x), filled(x))


def test_compile(train):
    model, x = make("swin", depths=(2,), num_heads=(2,)), images()
    attach(model, "table")
    train(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swin", "swin v2", "swin v2 cr", "maxvit", "maxvit, tf", "coatnet"])
def test_compile_and_export(name, train):
    model, x = make(name), images(size_of(name))
    attach(model, "table")
    train(model)
    with torch.no_grad():
        wanted = model(x)
        torch._dynamo.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-5)
        exported = torch.export.export(model, (x,), strict=False).module()
        torch.testing.assert_close(exported(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    [
        "swin_tiny_patch4_window7_224",
        "swin_s3_tiny_224",
        "swinv2_tiny_window8_256",
        "swinv2_cr_tiny_224",
        "maxvit_pico_rw_256",
        "maxvit_tiny_tf_224",
        "maxvit_rmlp_pico_rw_256",
        "coatnet_pico_rw_224",
        "coatnet_nano_cc_224",
        "coatnext_nano_rw_224",
    ],
)
@pytest.mark.parametrize("encoding", ["table", "irpe", "rope_axial"])
def test_architectures_at_their_own_size(architecture, encoding, train):
    torch.manual_seed(0)
    model = timm.create_model(architecture, num_classes=5).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith(("norm1.weight", "norm2.weight", "gamma")):
                parameter.fill_(1.0)
            elif parameter.ndim in (2, 4):
                parameter.normal_(std=parameter[0].numel() ** -0.5)
        x = images(model.pretrained_cfg["input_size"][1:], batch=1)
        before = model(x)
        attach(model, encoding)
        assert (model(x) - before).abs().max() == 0.0
        train(model)
        assert (model(x) - before).abs().max() > 1e-3
