"""Masks in every implementation: against a loop, and queries without keys."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import relbias as rb

B, H, HKV, D = 2, 4, 2, 8
LENGTHS = [(6, 6), (2, 6), (6, 3), (1, 1), (1, 7)]

pytestmark = pytest.mark.usefixtures("small_blocks")


def plain(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """Attention written down for given pairs, (B, H, N, M) bool; 0 where a query has no key."""
    k, v = (x.repeat_interleave(H // HKV, dim=1) for x in (k, v))
    logits = torch.where(allowed, q @ k.mT / D**0.5 + bias, torch.tensor(-1e30, dtype=q.dtype))
    return (logits.softmax(-1) * allowed) @ v


def loop(n: int, m: int, rule) -> Tensor:
    """Which pairs a rule over (item, query slot, key slot) allows; the queries are the last n of m slots."""
    pairs = [[[rule(b, i + m - n, j) for j in range(m)] for i in range(n)] for b in range(B)]
    return torch.tensor(pairs).view(B, 1, n, m)


def check(qkv, outcome, implementation, arguments, allowed, bias=0.0):
    ours = outcome(qkv, *qkv, implementation=implementation, **arguments)
    expected = plain(*qkv, allowed.expand(B, H, *allowed.shape[2:]), bias)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(ours[0], expected)
    for ours_grad, grad in zip(ours[1], torch.autograd.grad(expected, qkv, cotangent), strict=True):
        torch.testing.assert_close(ours_grad, grad)
    empty = ~allowed.any(-1).expand(B, H, -1)
    assert (ours[0][empty] == 0).all()


@pytest.mark.parametrize(("n", "m"), LENGTHS)
def test_causal_is_aligned_at_the_bottom_right(qkv, outcome, implementation, n, m):
    check(qkv(n, m), outcome, implementation, {"is_causal": True}, loop(n, m, lambda b, i, j: j <= i))


@pytest.mark.parametrize(("n", "m"), LENGTHS)
@pytest.mark.parametrize("window", [(0, 0), (2, 0), (0, 1), (1, 2), (99, 99)])
def test_window(qkv, outcome, implementation, n, m, window):
    allowed = loop(n, m, lambda b, i, j: -window[0] <= j - i <= window[1])
    check(qkv(n, m), outcome, implementation, {"window": window}, allowed)


@pytest.mark.parametrize(("n", "m"), [(6, 6), (2, 6), (1, 6)])
def test_documents(qkv, outcome, implementation, n, m):
    ids = torch.tensor([[0, 0, 1, 1, 1, 2], [5, 5, 5, 5, 5, 5]])
    allowed = loop(n, m, lambda b, i, j: bool(ids[b, i] == ids[b, j]))
    check(qkv(n, m), outcome, implementation, {"document_ids": ids}, allowed)


@pytest.mark.parametrize(("n", "m"), [(4, 6), (6, 6)])
def test_padding(qkv, outcome, implementation, n, m):
    padding = torch.zeros(B, m, dtype=torch.bool)
    padding[0, :3] = True
    allowed = loop(n, m, lambda b, i, j: not padding[b, j])
    check(qkv(n, m), outcome, implementation, {"key_padding_mask": padding}, allowed)


@pytest.mark.parametrize("shape", [(6,), (4, 6), (4, 1), (1, 6), (H, 4, 6), (1, 1, 6), (B, 1, 4, 6), (B, H, 4, 6)])
def test_boolean_mask_says_who_may_attend(qkv, outcome, implementation, shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) > 0.4
    check(qkv(4, 6), outcome, implementation, {"attn_mask": mask}, mask.expand(B, H, 4, 6))


@pytest.mark.parametrize("shape", [(6,), (4, 6), (4, 1), (1, 6), (H, 4, 6), (1, 1, 6), (B, 1, 4, 6), (B, H, 4, 6)])
def test_float_mask_is_added(qkv, outcome, implementation, shape):
    mask = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = mask.masked_fill(mask > 1.0, -math.inf)
    allowed = (mask > -math.inf).expand(B, H, 4, 6)
    check(qkv(4, 6), outcome, implementation, {"attn_mask": mask}, allowed, mask.masked_fill(mask == -math.inf, 0.0))


@pytest.mark.parametrize("q_dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask_dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_float_mask_of_any_dtype(qkv, implementation, q_dtype, mask_dtype):
    q, k, v = qkv(4, 6, q_dtype)
    mask = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).to(mask_dtype)
    out = rb.relative_attention(q, k, v, attn_mask=mask, implementation=implementation)
    expected = plain(*(x.double() for x in (q, k, v)), torch.ones(B, H, 4, 6, dtype=torch.bool), mask.double())
    assert out.dtype == q_dtype
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5 if q_dtype == torch.float32 else 2e-2)


def test_trainable_float_mask(qkv, outcome, implementation, draw):
    mask, (q, k, v) = draw(H, 4, 6), qkv(4, 6)
    ours = outcome([mask], q, k, v, attn_mask=mask, implementation=implementation)
    expected = outcome([mask], q, k, v, rb.Terms(b=mask), implementation="reference")
    torch.testing.assert_close(ours, expected)


def test_all_masks_together(qkv, outcome, implementation):
    n, m = 5, 7
    mask = torch.randn(B, 1, n, m, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padding = torch.rand(B, m, generator=torch.Generator().manual_seed(1)) < 0.2
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [2, 2, 2, 2, 2, 3, 3]])
    arguments = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": True, "window": (3, 5)}
    allowed = loop(n, m, lambda b, i, j: i - 3 <= j <= i and bool(ids[b, i] == ids[b, j]) and not padding[b, j])
    check(qkv(n, m), outcome, implementation, {**arguments, "document_ids": ids}, allowed, mask)


EMPTY = {
    "boolean": {"attn_mask": torch.tensor([True, False, True])[:, None].expand(3, 5)},
    "float": {"attn_mask": torch.tensor([0.0, -math.inf, 0.0]).double()[:, None].expand(3, 5)},
    "all keys are padding": {"key_padding_mask": torch.tensor([[False] * 5, [True] * 5])},
    "before the first key": {"is_causal": True, "attn_mask": torch.ones(3, 5, dtype=torch.bool).tril(-1)},
    "nothing at all": {"attn_mask": torch.zeros(3, 5, dtype=torch.bool)},
}
ENCODINGS = {"none": {}, "t5": {}, "alibi": {"variant": "causal"}, "shaw": {}, "rope": {}}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_query_without_keys_gets_zero_and_finite_gradients(qkv, outcome, implementation, name, kind, dtype):
    q, k, v = qkv(3, 5, dtype)
    encoding = rb.create_encoding(name, H, D, **ENCODINGS[name])
    terms = encoding(rb.relations.Sequence()(3, 5))
    arguments = dict(EMPTY[kind])
    if "attn_mask" in arguments and arguments["attn_mask"].dtype != torch.bool:
        arguments["attn_mask"] = arguments["attn_mask"].to(dtype)
    leaves = [q, k, v, *encoding.parameters()]
    out, grads = outcome(leaves, q, k, v, terms, implementation=implementation, **arguments)
    allowed = rb.attention.masks.Masks(3, 5, **arguments).allowed(slice(None), q.device)
    if allowed is None:
        allowed = arguments["attn_mask"] > -math.inf
    empty = ~allowed.expand(B, H, 3, 5).any(-1)
    assert empty.any()
    assert (out[empty] == 0).all()
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads)
    assert (grads[0][empty] == 0).all()


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 4), (4, 0)])
@pytest.mark.parametrize("name", ENCODINGS)
def test_no_token(qkv, outcome, implementation, name, n, m):
    leaves = qkv(n, m)
    terms = rb.create_encoding(name, H, D)(rb.relations.Sequence()(n, m))
    out, grads = outcome(leaves, *leaves, terms, is_causal=True, implementation=implementation)
    assert out.shape == (B, H, n, D)
    assert (out == 0).all()
    assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("codes", [(1, 1), (B, 1), (1, H), (B, H)])
@pytest.mark.parametrize("table", [(1,), (H,), (B, H), (B, 1), (1, H)])
def test_items_and_heads_of_codes_and_of_a_table(draw, outcome, implementation, codes, table):
    """Each may be the same for all."""
    q, k, v, b = draw(B, H, 5, 8), draw(B, H, 6, 8), draw(B, H, 6, 8), draw(*table, 3)
    index = rb.relations.Pairs(3)(torch.randint(3, (*codes, 5, 6), generator=torch.Generator().manual_seed(0)))
    bias = b.expand(B, H, 3)[torch.arange(B)[:, None, None, None], torch.arange(H)[:, None, None], index.codes()]
    expected = outcome([q, k, v, b], q, k, v, attn_mask=bias, implementation="reference")
    ours = outcome([q, k, v, b], q, k, v, rb.Terms(b=b, index=index), implementation=implementation)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", "bKQV")
def test_no_item(implementation, name):
    """Of a batch that is split, some parts may be empty."""
    codes = rb.relations.Pairs(3)(torch.zeros(0, 5, 6, dtype=torch.long))
    table = torch.randn(0, H, 3, *[8] * (name != "b"), requires_grad=True)
    q, k = torch.randn(0, H, 5, 8, requires_grad=True), torch.randn(0, H, 6, 8)
    terms = rb.Terms(**{name: table}, index=codes)
    out = rb.relative_attention(q, k, k, terms, is_causal=True, implementation=implementation)
    out.sum().backward()
    assert out.shape == q.shape


def test_non_contiguous_tensors(draw, outcome, implementation):
    leaves = [draw(B, D, 6, H).permute(0, 3, 2, 1) for _ in range(3)]
    mask = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)).mT > 0.3
    encoding = rb.create_encoding("shaw", H, D)
    terms = encoding(rb.relations.Sequence()(6))
    ours = outcome(leaves, *leaves, terms, attn_mask=mask, implementation=implementation)
    dense = [x.contiguous() for x in leaves]
    expected = outcome(dense, *dense, terms, attn_mask=mask.contiguous(), implementation="reference")
    torch.testing.assert_close(ours, expected)


ZEROS = torch.zeros


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attn_mask": ZEROS(4, 6, dtype=torch.long)}, "boolean .* or floating, got torch.int64"),
        ({"attn_mask": ZEROS(5, 6)}, r"attn_mask has shape \(5, 6\), which does not fit \(2, 4, 4, 6\)"),
        ({"attn_mask": ZEROS(3, 1, 4, 6)}, r"attn_mask has shape \(3, 1, 4, 6\)"),
        ({"attn_mask": ZEROS(1, 2, 4, 4, 6)}, r"attn_mask has shape \(1, 2, 4, 4, 6\)"),
        ({"key_padding_mask": ZEROS(2, 6)}, "boolean .*, got torch.float32"),
        ({"key_padding_mask": ZEROS(2, 4, dtype=torch.bool)}, r"shape \(2, 4\), expected \(2, 6\)"),
        ({"window": (-1, 2)}, r"of at least 0, got \(-1, 2\)"),
        ({"window": (1, 2, 3)}, r"of at least 0, got \(1, 2, 3\)"),
        ({"window": (None, 2)}, "of at least 0"),
        ({"window": (1.5, 2)}, r"of at least 0, got \(1.5, 2\)"),
        ({"window": 3}, "of at least 0, got 3"),
        ({"document_ids": ZEROS(2, 4)}, r"document_ids has shape \(2, 4\), expected \(2, 6\)"),
        ({"dropout_p": 1.5}, "a probability from 0 to 1, got 1.5"),
        ({"scale": ZEROS(3)}, r"one per head, \(4,\), got shape \(3,\)"),
    ],
)
def test_bad_arguments(qkv, arguments, message):
    with pytest.raises(ValueError, match=message):
        rb.relative_attention(*qkv(4, 6), **arguments)


def test_documents_of_more_queries_than_keys(qkv):
    with pytest.raises(ValueError, match="6 queries cannot be the last"):
        rb.relative_attention(*qkv(6, 4), document_ids=torch.zeros(B, 4, dtype=torch.long))
