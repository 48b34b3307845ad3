"""Sinusoids at the input against DistilBERT of transformers (sequences) and timm (grids)."""

from __future__ import annotations

import pytest
import torch
from timm.layers import pos_embed_sincos
from transformers.models.distilbert import modeling_distilbert

import relbias as rb

HEADS, SIZE = 2, 12
DIM = HEADS * SIZE


def test_distilbert_sequence(dtype, monkeypatch):
    if dtype == torch.float64:  # the peer rounds its sinusoids to float32; here it keeps them in float64
        monkeypatch.setattr(torch, "FloatTensor", torch.DoubleTensor)
    expected = modeling_distilbert._create_sinusoidal_embeddings(60, DIM, torch.empty(60, DIM, dtype=dtype))
    encoding = rb.create_encoding("sinusoidal", HEADS, SIZE)
    x = torch.randn(3, 60, DIM, dtype=dtype)
    assert_embeds(encoding, x, expected)
    positions = torch.tensor([[7, 3, 59], [0, 0, 1]])
    index = rb.relations.Sequence()(3, positions=positions)
    assert_embeds(encoding, x[:2, :3], expected[positions], index)


@pytest.mark.parametrize("grid", [(4, 4), (3, 5)])
@pytest.mark.parametrize("prefix_tokens", [0, 1])
def test_timm_grid(dtype, monkeypatch, grid, prefix_tokens):
    if dtype == torch.float64:  # timm's constant, the bands in float32, is substituted by the same in float64

        def bands(num_bands, temperature, step, device):
            return 1.0 / temperature ** (torch.arange(0, num_bands, step, dtype=torch.float64) / num_bands)

        monkeypatch.setattr(pos_embed_sincos, "freq_bands", bands)
    expected = pos_embed_sincos.build_sincos2d_pos_embed(list(grid), DIM, interleave_sin_cos=True, dtype=dtype)
    # timm's order is (y or x, sine or cosine, band), ours is (y or x, band, sine or cosine).
    expected = expected.view(-1, 2, 2, DIM // 4).transpose(2, 3).flatten(1)
    expected = torch.cat((torch.zeros(prefix_tokens, DIM, dtype=dtype), expected))
    encoding = rb.create_encoding("sinusoidal", HEADS, SIZE, rb.relations.Grid(*grid, prefix_tokens))
    assert_embeds(encoding, torch.randn(2, len(expected), DIM, dtype=dtype), expected)


def assert_embeds(encoding, x, expected, index=None):
    x = x.clone().requires_grad_()
    out = encoding.embed(x, index)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-5}[x.dtype]
    assert out.dtype == x.dtype
    torch.testing.assert_close(out - x, expected.expand_as(x), rtol=0, atol=tolerance)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))
