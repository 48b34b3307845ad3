"""Dropout, half precision and autocast in every implementation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import relbias as rb
from relbias.attention import masks as masks_module

B, H, HKV, D = 2, 4, 2, 8
ENCODINGS = {"none": {}, "t5": {}, "alibi": {}, "shaw": {}, "rope": {}}

pytestmark = pytest.mark.usefixtures("small_blocks")


def _keep(shape: tuple[int, ...], rows: slice, dropout_p: float, device: torch.device) -> Tensor:
    """The same weights are kept however the rows are cut."""
    full = torch.rand(shape, generator=torch.Generator().manual_seed(7)) >= dropout_p
    return full[:, :, rows]


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_of_blockwise_equals_reference_with_a_shared_mask(qkv, outcome, monkeypatch, p):
    monkeypatch.setattr(masks_module, "keep_mask", _keep)
    q, k, v = qkv(6, 6)
    encoding = rb.create_encoding("shaw", H, D, dtype=torch.float64)
    leaves = [q, k, v, encoding.keys]
    both = [
        outcome(leaves, q, k, v, encoding(rb.relations.Sequence()(6)), dropout_p=p, is_causal=True, implementation=name)
        for name in ("reference", "blockwise")
    ]
    torch.testing.assert_close(both[0], both[1])
    without = outcome(leaves, q, k, v, encoding(rb.relations.Sequence()(6)), is_causal=True)
    assert not torch.allclose(both[0][0], without[0])
    if p == 1.0:
        assert (both[0][0] == 0).all()


def test_dropout_of_blockwise_is_the_same_in_the_recomputed_backward_pass(qkv):
    """The gradient of v is the dropped weights, transposed: it must be those of the forward pass."""
    q, k, _ = qkv(6, 6)
    v = torch.eye(6, D, dtype=torch.float64).expand(B, HKV, 6, D).clone().requires_grad_()
    torch.manual_seed(3)
    out = rb.relative_attention(q, k, v, dropout_p=0.5, implementation="blockwise")
    weights = out[..., :6].detach()  # v picks the weights of the six keys
    cotangent = torch.randn(out.shape, dtype=torch.float64)
    (grad,) = torch.autograd.grad(out, v, cotangent)
    expected = (weights.mT @ cotangent).unflatten(1, (HKV, H // HKV)).sum(2)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("terms_of", ["none", "t5"])
def test_dropout_in_distribution(implementation, terms_of):
    """Over many draws the mean is the output without dropout, and the share of dropped weights is p."""
    generator = torch.Generator().manual_seed(0)
    n, repeats, p = 4, 4000, 0.25
    q, k = torch.randn(2, 1, 1, n, D, generator=generator)
    v = torch.eye(n, D)[None, None]  # the output is the weights
    encoding = rb.create_encoding(terms_of, 1, D)
    terms = encoding(rb.relations.Sequence()(n))
    torch.manual_seed(0)
    many = [x.expand(repeats, -1, -1, -1) for x in (q, k, v)]
    weights = rb.relative_attention(*many, terms, dropout_p=p, implementation=implementation).detach()[..., :n]
    exact = rb.relative_attention(q, k, v, terms, implementation="reference").detach()[..., :n]
    kept = weights != 0
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=0.01)
    torch.testing.assert_close(weights[kept], (exact / (1 - p)).expand_as(weights)[kept], rtol=1e-4, atol=1e-5)
    assert (weights.mean(0) - exact[0]).abs().max() < 0.02


HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_precision_is_as_near_as_the_reference(qkv, outcome, implementation, name, dtype):
    """The error against float64 is at most twice that of the reference, which sums in float32."""
    leaves = qkv(6, 6, dtype)
    terms = rb.create_encoding(name, H, D)(rb.relations.Sequence()(6))
    exact_leaves = [x.detach().double().requires_grad_() for x in leaves]
    exact = outcome(exact_leaves, *exact_leaves, terms, is_causal=True, implementation="reference")

    def errors(which: str) -> list[float]:
        out, grads = outcome(leaves, *leaves, terms, is_causal=True, implementation=which)
        assert out.dtype == dtype
        pairs = zip([out, *grads], [exact[0], *exact[1]], strict=True)
        return [float((ours.double() - theirs).detach().abs().max()) for ours, theirs in pairs]

    for ours, reference in zip(errors(implementation), errors("reference"), strict=True):
        assert ours <= 2 * reference


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_autocast_computes_as_in_that_dtype(qkv, outcome, implementation, name, dtype):
    leaves = qkv(6, 6, torch.float32)
    encoding = rb.create_encoding(name, H, D)
    with torch.autocast("cpu", dtype):
        terms = encoding(rb.relations.Sequence()(6))
        out = rb.relative_attention(*leaves, terms, is_causal=True, implementation=implementation)
    grads = torch.autograd.grad(out.float().sum(), leaves)  # outside, as in a training loop
    low = [x.to(dtype) for x in leaves]
    expected = rb.relative_attention(*low, terms, is_causal=True, implementation=implementation)
    assert out.dtype == dtype
    assert torch.equal(out, expected)
    for grad, expected_grad in zip(grads, torch.autograd.grad(expected.float().sum(), leaves), strict=True):
        assert grad.dtype == torch.float32
        assert torch.equal(grad, expected_grad)


def test_autocast_leaves_float64_alone(qkv, implementation):
    leaves = qkv(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        out = rb.relative_attention(*leaves, implementation=implementation)
    assert out.dtype == torch.float64
    assert torch.equal(out, rb.relative_attention(*leaves, implementation=implementation))
