"""Swin v2's biases and attention against timm's and transformers'."""

from __future__ import annotations

import pytest
import torch
from timm.layers import RelPosMlp
from timm.models.swin_transformer_v2 import WindowAttention
from transformers import Swinv2Config
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import relbias as rb

DIM, HEADS = 24, 3


@pytest.fixture
def exact(dtype, monkeypatch):
    """Lets the peers, which compute coordinates in float32 whatever their parameters are, compute them in `dtype`."""

    def build(make):
        with monkeypatch.context() as patch:
            if dtype == torch.float64:
                patch.setattr(torch, "float32", torch.float64)
                patch.setattr(torch.Tensor, "float", torch.Tensor.double)
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            try:
                return make()
            finally:
                torch.set_default_dtype(before)

    return build


def ours_like(relation, mlp, log_scale, dtype, **options):
    """Our layer with the network and the scale of a peer, which are drawn here."""
    ours = rb.RelativeAttention(
        DIM, HEADS, rb.create_encoding("swin_v2", HEADS, DIM // HEADS, relation, **options), relation, scale="paper"
    ).to(dtype)
    with torch.no_grad():
        for parameter in mlp:
            torch.nn.init.normal_(parameter, std=0.2)
        log_scale[:] = torch.tensor([1.0, 2.0, 6.0]).view_as(log_scale)  # the last is beyond the largest
        for mine, theirs in zip(parameters(ours), [*mlp, log_scale], strict=True):
            mine.copy_(theirs.view_as(mine))
    return ours


def parameters(ours):
    encoding = ours.encoding
    return [encoding.hidden.weight, encoding.hidden.bias, encoding.out.weight, encoding.log_scale]


MAPS = [lambda g: g, lambda g: g, lambda g: g, lambda g: g, lambda g: g.flatten()]


@pytest.mark.parametrize("implementation", ["reference", "folded", "blockwise"])
@pytest.mark.parametrize("window", [(3, 5), (4, 2), (1, 6), (1, 1)])
@pytest.mark.parametrize(("pretrained", "shifted"), [(None, False), ((5, 4), True)])
def test_timm(exact, dtype, assert_same, copy_linear, implementation, window, pretrained, shifted):
    torch.manual_seed(0)
    n = window[0] * window[1]
    theirs = exact(lambda: WindowAttention(DIM, window, HEADS, pretrained_window_size=pretrained or (0, 0)))
    assert theirs.qkv.weight.dtype == theirs.relative_coords_table.dtype == dtype
    torch.nn.init.normal_(theirs.q_bias)
    torch.nn.init.normal_(theirs.v_bias)
    mlp = list(theirs.cpb_mlp.parameters())
    ours = ours_like(rb.relations.Grid(*window), mlp, theirs.logit_scale, dtype, pretrained_window=pretrained)
    ours.implementation = implementation
    biases = (theirs.q_bias, None, theirs.v_bias)
    for layer, weight, bias in zip(
        (ours.q_proj, ours.k_proj, ours.v_proj), theirs.qkv.weight.chunk(3), biases, strict=True
    ):
        copy_linear(layer, weight, bias)
    copy_linear(ours.out_proj, theirs.proj.weight, theirs.proj.bias)
    x = torch.randn(4, n, DIM, dtype=dtype, requires_grad=True)
    mask = torch.where(torch.rand(2, n, n) < 0.3, -100.0, 0.0).to(dtype) if shifted else None
    out = ours(x, attn_mask=mask.repeat(2, 1, 1)[:, None] if shifted else None)
    if n == 1:  # a token alone: the weights are 1 whatever the bias
        torch.testing.assert_close(out, theirs(x, mask))
        return
    assert_same(
        (out, [x, *parameters(ours), ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.bias]),
        (theirs(x, mask), [x, *mlp, theirs.logit_scale, theirs.qkv.weight, theirs.qkv.weight, theirs.v_bias]),
        [*MAPS, lambda g: g.chunk(3)[0], lambda g: g.chunk(3)[1], lambda g: g],
        logits=100.0,  # the largest scale, of products of vectors of length 1
    )


@pytest.mark.parametrize("window", [(3, 5), (4, 2)])
@pytest.mark.parametrize("pretrained", [(0, 0), (6, 4)])
def test_transformers(exact, dtype, assert_same, copy_linear, window, pretrained):
    torch.manual_seed(0)
    n = window[0] * window[1]
    theirs = exact(lambda: Swinv2SelfAttention(Swinv2Config(qkv_bias=True), DIM, HEADS, window, list(pretrained)))
    theirs.eval()  # its configuration drops nothing in evaluation
    mlp = list(theirs.continuous_position_bias_mlp.parameters())
    options = {"pretrained_window": pretrained} if pretrained[0] else {}
    ours = ours_like(rb.relations.Grid(*window), mlp, theirs.logit_scale, dtype, **options)
    for layer, linear in ((ours.q_proj, theirs.query), (ours.k_proj, theirs.key), (ours.v_proj, theirs.value)):
        copy_linear(layer, linear.weight, linear.bias)
    copy_linear(ours.out_proj, torch.eye(DIM))
    x = torch.randn(4, n, DIM, dtype=dtype, requires_grad=True)
    mask = torch.randn(2, n, n, dtype=dtype)
    # The peer adds a mask twice.
    assert_same(
        (ours(x, attn_mask=2 * mask.repeat(2, 1, 1)[:, None]), [x, *parameters(ours), ours.k_proj.weight]),
        (theirs(x, mask)[0], [x, *mlp, theirs.logit_scale, theirs.key.weight]),
        [*MAPS, lambda g: g],
    )


@pytest.mark.parametrize("window", [(3, 5), (4, 2)])
def test_bias_of_timms_relative_position_network(exact, dtype, assert_same, window):
    torch.manual_seed(0)
    theirs = exact(lambda: RelPosMlp(window, HEADS, hidden_dim=16, mode="swin")).eval()
    relation = rb.relations.Grid(*window)
    encoding = rb.create_encoding("swin_v2", HEADS, DIM // HEADS, relation, width=16).to(dtype)
    ours = [encoding.hidden.weight, encoding.hidden.bias, encoding.out.weight]
    mlp = [theirs.mlp.fc1.weight, theirs.mlp.fc1.bias, theirs.mlp.fc2.weight]
    with torch.no_grad():
        for mine, their in zip(ours, mlp, strict=True):
            mine.copy_(torch.nn.init.normal_(their))
    (entry,) = encoding(relation()).entries
    assert_same((entry.b[:, entry.index.codes()[0, 0]], ours), (theirs.get_bias()[0], mlp))
