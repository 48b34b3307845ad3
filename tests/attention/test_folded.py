"""Which of torch's kernels compute a mask that is trained, and what it costs in precision."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend

import relbias as rb
from relbias.attention import folded
from relbias.relations import Sequence

B, H, N, D = 2, 4, 37, 16


@pytest.mark.parametrize(
    ("device", "mask", "others", "expected"),
    [
        ("cpu", True, True, []),
        ("cuda", False, True, []),
        ("cuda", True, True, [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]),
        ("cuda", True, False, [SDPBackend.MATH]),
    ],
)
def test_a_trained_mask_has_a_kernel_that_returns_its_gradient(device, mask, others, expected):
    assert folded._backends(device, mask, others) == expected
    with torch.no_grad():
        assert folded._backends(device, mask, others) == []


@pytest.mark.parametrize("others", [True, False])
def test_the_kernels_are_chosen_around_the_call(others, monkeypatch):
    """What would be chosen on CUDA, asked for here."""
    asked, allowed = [], []
    attend, choose = folded.scaled_dot_product_attention, folded._backends

    def chosen(device, mask_is_trained, others_are_trained):
        asked.append((device, mask_is_trained, others_are_trained))
        return choose("cuda", mask_is_trained, others_are_trained)

    def watched(*args, **kwargs):
        flags = torch.backends.cuda
        allowed.append((flags.flash_sdp_enabled(), flags.mem_efficient_sdp_enabled(), flags.math_sdp_enabled()))
        return attend(*args, **kwargs)

    monkeypatch.setattr(folded, "_backends", chosen)
    monkeypatch.setattr(folded, "scaled_dot_product_attention", watched)
    q, k, v = (torch.randn(B, H, N, D).requires_grad_(others) for _ in range(3))
    table = torch.randn(H, 7, requires_grad=True)
    terms = rb.Terms(b=table, index=Sequence(3)(N))
    out = rb.relative_attention(q, k, v, terms, implementation="folded")
    assert asked == [("cpu", True, others)]
    assert allowed == [(False, others, True)]
    expected = rb.relative_attention(q, k, v, terms, implementation="reference")
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(
        torch.autograd.grad(out.sin().sum(), table), torch.autograd.grad(expected.sin().sum(), table)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_no_mask_is_in_half_precision(dtype, monkeypatch):
    """A bias beyond the range of float16, and one that bfloat16 would round, keep their numbers."""
    masks, dtypes = [], []
    attend = folded.scaled_dot_product_attention

    def watched(*args, attn_mask, **kwargs):
        masks.append(attn_mask)
        dtypes.extend(tensor.dtype for tensor in (*args, attn_mask))
        return attend(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(folded, "scaled_dot_product_attention", watched)
    q, k, v = (torch.randn(B, H, N, D, dtype=dtype) for _ in range(3))
    table = torch.tensor([[1e5, 1e5 + 1, 1e5 + 2, 1e5 + 3, 1e5 + 4, 1e5 + 5, 1e5 + 6]])
    out = rb.relative_attention(q, k, v, rb.Terms(b=table, index=Sequence(3)(N)), implementation="folded")
    assert torch.equal(masks[0][0, 0].unique(), table[0])
    assert dtypes == [torch.float32] * 4  # torch's kernels take a mask in the dtype of q
    assert out.dtype == dtype
    assert bool(out.isfinite().all())


@pytest.mark.parametrize("device", ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("trained", ["mask", "all"])
@pytest.mark.parametrize("masks", [{}, {"is_causal": True}, {"window": (3, 1)}])
def test_a_trained_mask(device, dtype, trained, masks):
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, H, N, D, device=device, dtype=dtype) for _ in range(3))
    table = torch.randn(H, 7, device=device)
    results = {}
    for implementation in ("folded", "reference"):
        precise = torch.float64 if implementation == "reference" else dtype
        leaves = [x.to(precise).clone() for x in (q, k, v)] + [
            table.to(torch.promote_types(precise, torch.float32)).clone()
        ]
        wanted = leaves if trained == "all" else leaves[3:]
        for leaf in wanted:
            leaf.requires_grad_()
        terms = rb.Terms(b=leaves[3], index=Sequence(3)(N))
        out = rb.relative_attention(*leaves[:3], terms, implementation=implementation, **masks)
        results[implementation] = [out.detach(), *torch.autograd.grad(out.float().sin().sum(), wanted)]
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    for mine, exact in zip(results["folded"], results["reference"], strict=True):
        assert (mine.double() - exact.double()).abs().max() <= tolerance * exact.double().abs().max().clamp(min=1.0)


@pytest.mark.parametrize(("least", "looked_at"), [(0.0, 0), (-torch.inf, 1), (torch.nan, 1)])
def test_rows_are_looked_at_where_a_key_may_be_hidden(least, looked_at, monkeypatch):
    """A mask without -inf is given to torch as it is, without a copy."""
    calls, rows = [], folded.empty_rows
    monkeypatch.setattr(folded, "empty_rows", lambda mask: calls.append(1) or rows(mask))
    q, k, v = torch.randn(3, B, H, N, D).unbind()
    table = torch.randn(H, 7)
    table[0, 3] = least  # only the diagonal, so that no row is empty
    padding = torch.zeros(B, N, dtype=torch.bool)
    padding[1] = least == -torch.inf
    masks = {"key_padding_mask": padding} if least == -torch.inf else {}
    terms = rb.Terms(b=table, index=Sequence(3)(N))
    both = [rb.relative_attention(q, k, v, terms, implementation=i, **masks) for i in ("folded", "reference")]
    assert len(calls) == looked_at
    torch.testing.assert_close(*both, equal_nan=True)
