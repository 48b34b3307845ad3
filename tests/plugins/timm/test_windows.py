"""What holds for every model that attends in windows, whatever the family."""

import copy

import pytest
import timm
import torch

from relbias.plugins.engine import encodings
from relbias.plugins.timm import attach, detach, list_models, settings

# The windows are not square; in the first stage there are several of them, in the last the window is smaller.
SWIN = {"img_size": (64, 96), "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)}
FAMILY = {
    "swin": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (4, 6)}),
    "swin, shrunk": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (6, 13)}),
    "swin, padded": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (3, 5), "always_partition": True}),
    "swin, dynamic": ("swin_tiny_patch4_window7_224", SWIN | {"window_size": (4, 6), "strict_img_size": False}),
    "swin, head size": ("swin_s3_tiny_224", SWIN | {"window_size": ((4, 6), (2, 3)), "head_dim": 12}),
}
ONE_STAGE = {"swin": {"depths": (2,), "num_heads": (2,)}}
ENCODINGS = ("table", "swin_v2", "irpe", "shaw", "alibi", "rope_axial", "rope_mixed", {"a": "table", "b": "shaw"})


def make(family, **arguments):
    """A small model in eval mode in which attention matters to the output."""
    name, own = FAMILY[family]
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **own | arguments).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("bias_table"):
                parameter.normal_()
            if parameter.ndim == 2 and not key.endswith("bias_table"):
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    return model


def images(size=(64, 96), batch=2):
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("family", FAMILY)
@pytest.mark.parametrize("fused", [True, False])
def test_exactly_unchanged_until_moved_and_after_detach(family, train, fused):
    model = make(family)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = fused
    keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
    with torch.no_grad():
        before = model(images())
        for encoding in ENCODINGS:
            attach(model, encoding)
            assert (model(images()) - before).abs().max() == 0.0, encoding
            train(model)
            assert (model(images()) - before).abs().max() > 1e-3, encoding
            detach(model)
            assert (model(images()) - before).abs().max() == 0.0
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == classes


@pytest.mark.parametrize("family", FAMILY)
@pytest.mark.parametrize("encoding", ["table", "irpe", "rope_axial"])
def test_first_step_moves_every_layer(family, encoding):
    model = make(family)
    before = model(images())
    attach(model, encoding)
    out = model(images())
    assert (out - before).abs().max() <= 1e-6 * max(1.0, float(before.detach().abs().max()))
    out.square().sum().backward()
    attached = encodings(model)
    assert len(attached) >= 2
    for layer in attached:
        assert any(parameter.grad.abs().max() > 0 for parameter in layer.parameters())


@pytest.mark.parametrize("family", FAMILY)
def test_checkpointing_copies_and_state(family, train):
    model = make(family)
    attach(model, "table")
    train(model)
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        calls = []
        handle = encodings(model)[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        model.zero_grad()
        out = model(images())
        out.square().sum().backward()
        handle.remove()
        assert len(calls) == 1 + enable
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)

    copied, fresh = copy.deepcopy(model), make(family)
    attach(fresh, **settings(model))
    fresh.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(copied(images()), out)
    assert torch.equal(fresh(images()), out)
    detach(copied)
    copied.load_state_dict(make(family).state_dict(), strict=True)
    assert (copied(images()) - out).abs().max() > 1e-3
    assert torch.equal(model(images()), out)

    final, between = model.forward_intermediates(images())
    assert len(between) >= 2
    assert torch.equal(model.forward_head(final), out)


@pytest.mark.parametrize("family", ["swin"])
def test_compile_and_autocast(family, train):
    model = make(family, **ONE_STAGE[family])
    attach(model, "table")
    train(model)
    wanted = model(images())
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images()), wanted, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(model(images())).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["swin"])
def test_export(family, train):
    model = make(family, **ONE_STAGE[family])
    attach(model, "table")
    train(model)
    exported = torch.export.export(model, (images(),), strict=False).module()
    torch.testing.assert_close(exported(images()), model(images()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILY)
def test_meta_device(family, train):
    name, arguments = FAMILY[family]
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=5, **arguments)
    attach(model, "table")
    assert all(encoding.table.is_meta for encoding in encodings(model))
    filled = make(family)
    attach(filled, "table")
    train(filled)
    model.to_empty(device="cpu").eval()
    model.load_state_dict(filled.state_dict(), strict=True)
    for module in model.modules():
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    assert torch.equal(model(images()), filled(images()))


@pytest.mark.slow
def test_exactly_the_listed_models_are_supported():
    supported = []
    for name in timm.list_models(module="swin_transformer"):
        with torch.device("meta"):
            model = timm.create_model(name)
        attach(model, "table")
        supported.append(name)
    assert sorted(supported) == list_models("swin_*")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "swin_s3_tiny_224"])
@pytest.mark.parametrize("encoding", ["table", "irpe", "rope_axial"])
def test_architectures_at_their_own_size(name, encoding, train):
    model = timm.create_model(name, num_classes=5).eval()
    image = images((224, 224), batch=1)
    with torch.no_grad():
        before = model(image)
        attach(model, encoding)
        assert (model(image) - before).abs().max() == 0.0
        train(model)
        assert (model(image) - before).abs().max() > 1e-4
