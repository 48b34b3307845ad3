"""attach changes nothing until training does, in whatever host; detach undoes it."""

import copy

import pytest
import timm
import torch
from tests.plugins.torch.hosts import PADDING, make, tokens
from torch import nn

import relbias as rb
from relbias.plugins.engine import encodings
from relbias.plugins.torch import attach, detach
from relbias.plugins.torch.attention import RelativeMultiheadAttention

CHOICES = {
    "table": ("table", {"relation": rb.relations.Sequence(max_distance=4)}),
    "t5": ("t5", {}),
    "shaw": ("shaw", {"max_distance": 3}),
    "values": ("shaw", {"max_distance": 3, "values": True}),
    "irpe on values": ("irpe", {"relation": rb.relations.Grid(3, 3), "rpe_on": "v"}),
    "irpe on all": ("irpe", {"relation": rb.relations.Grid(3, 3), "rpe_on": "qkv"}),
    "alibi": ("alibi", {}),
    "rope": ("rope", {}),
    "sum": ({"a": "t5", "b": "rope"}, {}),
    "none": ("none", {}),
}
MODES = {
    "train": lambda model: (model.train(), torch.enable_grad())[1],
    "eval": lambda model: (model.eval(), torch.enable_grad())[1],
    "no_grad": lambda model: (model.eval(), torch.no_grad())[1],
    "inference_mode": lambda model: (model.eval(), torch.inference_mode())[1],
}


@pytest.fixture(params=CHOICES)
def choice(request):
    return CHOICES[request.param]


@pytest.mark.usefixtures("unfused")
def test_exactly_unchanged_until_moved_and_after_detach(host, train, choice):
    model, call = host
    encoding, options = choice
    keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
    names = [set(vars(module)) for module in model.modules()]
    with torch.no_grad():
        before = call(model)
        attach(model, encoding, **options)
        assert (call(model) - before).abs().max() == 0.0
        assert set(keys) <= set(model.state_dict())
        assert all(".encoding." in key for key in set(model.state_dict()) - set(keys))
        train(model)
        if encoding != "none":
            assert (call(model) - before).abs().max() > 1e-3
        detach(model)
        assert (call(model) - before).abs().max() == 0.0
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == classes
    assert [set(vars(module)) for module in model.modules()] == names


def test_first_step_moves_every_layer(host, choice):
    model, call = host
    encoding, options = choice
    before = call(model)
    attach(model, encoding, **options)
    out = call(model)
    assert (out - before).abs().max() <= 1e-6
    out.square().sum().backward()
    for layer in encodings(model):
        parameters = list(layer.parameters())
        assert not parameters or any(parameter.grad.abs().max() > 0 for parameter in parameters)


def test_fused_inference_differs_by_rounding(host):
    model, call = host
    with torch.no_grad():
        before = call(model)
        attach(model, "t5")
        assert (call(model) - before).abs().max() <= 1e-6 * max(1.0, float(before.abs().max()))


@pytest.mark.parametrize("mode", MODES)
def test_output_follows_the_tables(host, mode):
    model, call = host
    attach(model, "t5")
    with MODES[mode](model):
        before = call(model)
        for layer in encodings(model):
            with torch.no_grad():
                layer.table.normal_(generator=torch.Generator().manual_seed(3))
            after = call(model)
            assert (after - before).abs().max() > 1e-3
            before = after


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("head_dim", [6, 10, 18, 20, 36, 64])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    ("encoding", "options"), [("t5", {}), ("rope", {}), ("shaw", {}), ("shaw", {"values": True})], ids=str
)
def test_exact_at_any_head_size(head_dim, need_weights, encoding, options):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(2 * head_dim, 2).eval()
    for length in (5, 130):
        x = torch.randn(length, 3, 2 * head_dim)
        mask = torch.full((length, length), -torch.inf).triu(1)
        arguments = {"need_weights": need_weights, "average_attn_weights": False}
        with torch.no_grad():
            for masks in ({}, {"attn_mask": mask}, {"attn_mask": mask, "is_causal": True}):
                before = attention(x, x, x, **arguments, **masks)
                attach(attention, encoding, **options)
                after = attention(x, x, x, **arguments, **masks)
                detach(attention)
                assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True) if a is not None)


@pytest.mark.parametrize("name", ["encoder, padded", "encoder, batch second, padded", "conformer"])
def test_padding_is_not_seen(name, train):
    model, _ = make(name)
    attach(model, "t5")
    train(model)
    attention = next(module for module in model.modules() if isinstance(module, RelativeMultiheadAttention))
    x, n = tokens(32), 6
    assert PADDING[1, n:].all()
    assert not PADDING[1, :n].any()
    if attention.batch_first:
        together = attention(x, x, x, key_padding_mask=PADDING)[0][1, :n]
        alone = attention(*[x[1:, :n].contiguous()] * 3)[0][0]
    else:
        x = x.transpose(0, 1)
        together = attention(x, x, x, key_padding_mask=PADDING)[0][:n, 1]
        alone = attention(*[x[:n, 1:].contiguous()] * 3)[0][:, 0]
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


def test_padded_encoder_equals_each_item_alone(train):
    for name in ("encoder, padded", "encoder, batch second, padded"):
        model, call = make(name)
        attach(model, "shaw")
        train(model)
        with torch.no_grad():
            together = call(model)[9:]
            x = tokens(32)[1:, :6]
            alone = model(x)[0] if model.layers[0].self_attn.batch_first else model(x.transpose(0, 1))[:, 0]
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_cross_attention_is_not_a_site():
    model, _ = make("transformer")
    attach(model, "t5")
    assert [name for name in model.state_dict() if "encoding" in name] == [
        "encoder.layers.0.self_attn.encoding.table",
        "decoder.layers.0.self_attn.encoding.table",
    ]
    assert type(model.decoder.layers[0].multihead_attn) is nn.MultiheadAttention


def test_keeps_parameters_hooks_mode_and_dtype():
    model, _ = make("encoder")
    model.double().layers[0].self_attn.train()
    attention, calls = model.layers[0].self_attn, []
    attention.register_forward_hook(lambda *_: calls.append("hook"))
    weight = attention.in_proj_weight
    attach(model, "t5")
    assert model.layers[0].self_attn is attention
    assert attention.in_proj_weight is weight
    assert attention.encoding.table.dtype == torch.float64
    assert attention.encoding.training
    assert not model.layers[1].self_attn.encoding.training
    model(tokens(32).double())
    assert calls == ["hook"]


def test_new_parameters_train_in_a_frozen_model():
    model, call = make("encoder, padded")
    model.requires_grad_(False)
    attach(model, "t5")
    call(model).square().sum().backward()
    trained = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert trained == ["layers.0.self_attn.encoding.table", "layers.1.self_attn.encoding.table"]


def test_built_encoding_is_shared_and_brings_its_relation():
    for relation in (rb.relations.Sequence(max_distance=2), rb.relations.Grid(2, 4, prefix_tokens=1)):
        model, call = make("encoder")
        encoding = rb.create_encoding("table", 4, 8, relation)
        attach(model, encoding)
        assert not encoding.table.any()
        assert model.layers[0].self_attn.encoding is model.layers[1].self_attn.encoding is encoding
        call(model)


def test_reset_parameters_of_a_host():
    model, _ = make("gps")
    attach(model, "t5")
    weight = model.attn.in_proj_weight.clone()
    model.reset_parameters()
    assert (model.attn.in_proj_weight - weight).abs().max() > 0.01
    assert 0.01 < model.attn.encoding.table.std() < 0.03


def test_copies_are_independent(host, train):
    model, call = host
    attach(model, "t5")
    train(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        before = call(model)
        assert torch.equal(call(twin), before)
        for layer in encodings(twin):
            layer.table.zero_()
        assert torch.equal(call(model), before)
        assert not torch.equal(call(twin), before)
        detach(twin)
        assert torch.equal(call(model), before)


def test_beside_another_plugin(train):
    vision = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=0).eval()
    model = nn.ModuleDict({"vision": vision, "text": make("encoder")[0]})
    rb.plugins.timm.attach(vision, "table")
    train(vision)
    images = torch.randn(1, 3, 32, 32)
    before = vision(images)
    attach(model, "t5")
    assert len(encodings(model)) == 2
    detach(model)
    assert torch.equal(vision(images), before)
    rb.plugins.timm.detach(vision)
    assert not any(isinstance(module, rb.Encoding) for module in model.modules())
