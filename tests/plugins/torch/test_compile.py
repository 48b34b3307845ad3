"""Attached models compile without a graph break, can be exported, and may be recomputed in the backward pass."""

import pytest
import torch
from tests.plugins.torch.hosts import PADDING, make, tokens
from torch import nn
from torch.utils.checkpoint import checkpoint

from relbias.plugins.torch import attach


@pytest.mark.parametrize(
    ("name", "encoding", "grad", "whole"),
    [
        ("encoder", "t5", True, True),
        ("encoder, padded", "shaw", False, True),
        ("encoder, batch second, padded", "rope", False, True),
        # These hosts break the graph themselves: they look at values of lengths and masks.
        ("decoder", "t5", False, False),
        ("conformer", "t5", False, False),
        ("gps", "t5", False, False),
    ],
)
def test_compile(train, name, encoding, grad, whole):
    model, call = make(name)
    attach(model, encoding)
    train(model)
    torch._dynamo.reset()
    with torch.set_grad_enabled(grad):
        wanted = call(model)
        found = call(torch.compile(model, backend="eager", fullgraph=whole))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_export(train):
    for name in ("encoder", "encoder, batch second"):
        model, _ = make(name)
        attach(model, "t5")
        train(model)
        x = tokens(32, model.layers[0].self_attn.batch_first)
        exported = torch.export.export(model, (x,)).module()
        torch.testing.assert_close(exported(x), model(x), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.torch.jit:FutureWarning")
@pytest.mark.parametrize("encoding", ["t5", "shaw", "rope"])
def test_trace(train, unfused, encoding):
    """Tools that count operations trace a model."""
    model, _ = make("encoder")
    attach(model, encoding)
    train(model)
    with torch.no_grad():
        traced = torch.jit.trace(model, tokens(32))
        torch.testing.assert_close(traced(tokens(32, seed=3)), model(tokens(32, seed=3)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("part", ["layer", "attention"])
def test_checkpointed_parts(train, reentrant, part):
    model, _ = make("encoder")
    attach(model.double(), "t5")
    train(model)

    def gradients():
        model.zero_grad()
        model(tokens(32).double().requires_grad_(), src_key_padding_mask=PADDING).square().sum().backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    wanted, calls = gradients(), []
    for layer in model.layers:
        module = layer if part == "layer" else layer.self_attn
        run = module.forward
        module.forward = lambda *a, run=run, **k: checkpoint(
            lambda *b: calls.append(1) or run(*b, **k), *a, use_reentrant=reentrant
        )
    torch.testing.assert_close(gradients(), wanted, rtol=0, atol=1e-10)
    assert len(calls) == 4


def test_meta_device():
    attention = nn.MultiheadAttention(8, 2, device="meta")
    attach(attention, "t5")
    x = torch.zeros(5, 3, 8, device="meta")
    assert attention(x, x, x)[0].shape == (5, 3, 8)
    assert all(parameter.is_meta for parameter in attention.parameters())
