"""What V adds beside torch's kernel: nothing where it is 0, to the bit, and what the equation says elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

import relbias as rb
from relbias.relations import Grid, Pairs, Sequence
from relbias.terms import Entry

B, H, HKV, N, D = 2, 4, 2, 33, 8


def call_of(dtype=torch.float32, n=N, m=N):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(B, heads, length, D, generator=generator).to(dtype).requires_grad_()
        for heads, length in ((H, n), (HKV, m), (HKV, m))
    ]


def empty_row():
    mask = torch.zeros(N, N)
    mask[3] = -math.inf
    return mask


CASES = {
    "open": {},
    "causal": {"is_causal": True},
    "window": {"window": (3, 1)},
    "padding": {"key_padding_mask": torch.arange(N).expand(B, N) >= torch.tensor([[N], [20]])},
    "documents": {"document_ids": torch.arange(N).expand(B, N) // 9},
    "boolean": {"attn_mask": torch.rand(N, N, generator=torch.Generator().manual_seed(1)) > 0.7},
    "empty row": {"attn_mask": empty_row()},
    "normalized": {"normalize": True, "scale": torch.tensor([1.0, 0.5, 2.0, 3.0])},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("others", ["", "K", "rope"])
def test_zeros_change_nothing_to_the_bit(case, others):
    q, k, v = call_of()
    index = Sequence(4)(N)
    terms = {
        "": rb.Terms(),
        "K": rb.Terms(K=torch.randn(1, 9, D), index=index),
        "rope": rb.create_encoding("rope", H, D)(Sequence()(N)),
    }[others]
    values = rb.Terms(V=torch.zeros(1, 9, D), index=index) + rb.Terms(V=torch.zeros(H, 9, D), index=index.T)
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            out, without = (
                rb.relative_attention(q, k, v, t, implementation="folded", **CASES[case])
                for t in (terms + values, terms)
            )
        assert torch.equal(out, without)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("wanted", ["all", "V"])
@pytest.mark.parametrize("names", ["KV", "V"])  # without K masks may be boolean
def test_gradients_are_those_of_the_equation(case, wanted, names, outcome):
    q, k, v = call_of(torch.float64)
    generator = torch.Generator().manual_seed(2)
    tables = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((H, 9, D), (B, 1, 5, D))]
    codes = torch.randint(5, (B, 1, N, N), generator=generator)
    leaves = [*tables, q, k, v] if wanted == "all" else tables
    inputs = [q, k, v] if wanted == "all" else [x.detach() for x in (q, k, v)]
    for table in tables:
        table.requires_grad_()
    arguments = {key: x.double() if key == "scale" else x for key, x in CASES[case].items()}

    def result(implementation):
        terms = rb.Terms.of(
            Entry(**dict.fromkeys(names, tables[0]), index=Sequence(4)(N)), Entry(V=tables[1], index=Pairs(5)(codes))
        )
        return outcome(leaves, *inputs, terms, implementation=implementation, **arguments)

    torch.testing.assert_close(result("folded"), result("reference"), rtol=0, atol=1e-12)


def test_no_keys_and_no_queries():
    for n, m in ((3, 0), (0, 3), (0, 0)):
        q, k, v = call_of(n=n, m=m)
        table = torch.randn(H, 9, D, requires_grad=True)
        out = rb.relative_attention(q, k, v, rb.Terms(V=table, index=Sequence(4)(n, m)), implementation="folded")
        assert out.shape == q.shape
        assert (out == 0).all()
        (grad,) = torch.autograd.grad(out.sum(), table)
        assert (grad == 0).all()


def test_a_second_derivative():
    q, k, v = call_of(torch.float64, 5, 6)
    table = torch.randn(1, 5, D, dtype=torch.float64, requires_grad=True)
    results = []
    for implementation in ("folded", "reference"):
        terms = rb.Terms(K=table, V=table, index=Sequence(2)(5, 6))
        out = rb.relative_attention(q, k, v, terms, implementation=implementation)
        first = torch.autograd.grad(out.square().sum(), [q, table], create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), [q, k, v, table])
        results.append([*first, *second])
    torch.testing.assert_close(*results)


def test_under_vmap():
    q, k, v = call_of(torch.float64)
    tables = torch.randn(3, 1, 9, D, dtype=torch.float64)

    def loss(table, implementation):
        terms = rb.Terms(V=table, index=Sequence(4)(N))
        return rb.relative_attention(q, k, v, terms, is_causal=True, implementation=implementation).sin().sum()

    mapped = torch.func.vmap(torch.func.grad(lambda table: loss(table, "folded")))(tables)
    expected = torch.stack([torch.func.grad(lambda table: loss(table, "reference"))(table) for table in tables])
    torch.testing.assert_close(mapped, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    """Also where a rotation, which alone leaves the dtype as it is, comes with them."""
    q, k, v = call_of(dtype)
    terms = rb.Terms(V=torch.randn(1, 9, D), index=Sequence(4)(N)) + rb.create_encoding("rope", H, D)(Sequence()(N))
    out, expected = (rb.relative_attention(q, k, v, terms, implementation=i) for i in ("folded", "reference"))
    assert out.dtype == dtype
    step = torch.finfo(dtype).eps * expected.abs().clamp(min=2**-6)
    assert ((out - expected).abs() <= step).all()


def test_compiled_and_exported():
    encoding = rb.create_encoding("irpe", 2, 8, Grid(3, 3, prefix_tokens=1), rpe_on="qkv")
    module = rb.RelativeAttention(16, 2, encoding, Grid(3, 3, prefix_tokens=1), implementation="folded").eval()
    x = torch.randn(2, 10, 16)
    torch.testing.assert_close(torch.compile(module, fullgraph=True, backend="eager")(x), module(x))
    sizes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(module, (x,), dynamic_shapes=sizes).module()
    y = torch.randn(5, 10, 16)
    torch.testing.assert_close(exported(y), module(y))
