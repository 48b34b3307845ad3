"""flex against the reference. On CPU uncompiled, which computes the same; what compiles is slow and marked so."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention as torchs

import relbias as rb
from relbias.attention import flex_mask, functional
from relbias.attention.functional import IMPLEMENTATIONS
from relbias.relations import Grid, Hops, Pairs, Sequence

B, H, N, M, D = 2, 4, 7, 12, 16
MASKS = {
    "open": {},
    "causal": {"is_causal": True},
    "window": {"window": (3, 1)},
    "causal window": {"window": (3, 1), "is_causal": True},
    "left window": {"window": (10**12, 0)},
    "padding": {"key_padding_mask": torch.arange(M) < torch.tensor([[3], [0]])},
    "all padding": {"key_padding_mask": torch.arange(M) < torch.tensor([[3], [M]])},
    "documents": {"document_ids": torch.tensor([[0] * 5 + [1] * 7, [2] * 9 + [1] * 3])},
    "causal documents": {"document_ids": torch.arange(M).expand(B, M) // 4, "is_causal": True},
    "boolean": {"attn_mask": torch.arange(N)[:, None] % 3 != torch.arange(M) % 3},
    "boolean by item": {"attn_mask": (torch.arange(B * N * M) % 5 < 3).view(B, 1, N, M)},
    "boolean by head": {"attn_mask": (torch.arange(H * M) % 5 < 3).view(H, 1, M)},
    "empty row": {"attn_mask": torch.arange(N)[:, None].expand(N, M) != 2},
    "floating": {"attn_mask": torch.linspace(-3, 3, H * N * M).view(H, N, M)},
    "floating by key": {"attn_mask": torch.linspace(-3, 3, M), "is_causal": True},
    "floating, all hidden": {"attn_mask": torch.full((N, M), -torch.inf)},
}


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr("relbias.attention.flex._kernel", lambda device: torchs.flex_attention)
    monkeypatch.setattr(torchs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture(autouse=True)
def inference():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def qkv(n=N, m=M, kv_heads=H, dtype=torch.float32, device="cpu"):
    sizes = ((H, n), (kv_heads, m), (kv_heads, m))
    return [torch.randn(B, heads, tokens, D, dtype=dtype, device=device) for heads, tokens in sizes]


def both(q, k, v, terms, **arguments):
    return [rb.relative_attention(q, k, v, terms, implementation=name, **arguments) for name in ("flex", "reference")]


OFFSETS = Sequence(max_distance=3)(N, M)
CODES = Pairs(5)(torch.randint(5, (B, N, M), generator=torch.Generator().manual_seed(0)))
HEAD_CODES = Pairs(5)(torch.randint(5, (1, H, N, M), generator=torch.Generator().manual_seed(0)))


def hiding(table):
    """The table with codes that hide."""
    return table.masked_fill(torch.arange(table.shape[-1]) % 3 == 0, -torch.inf)


TERMS = {
    "b, offsets": lambda: rb.Terms(b=torch.randn(H, 7), index=OFFSETS),
    "b, one head": lambda: rb.Terms(b=torch.randn(1, 7), index=OFFSETS),
    "b, by item": lambda: rb.Terms(b=torch.randn(B, H, 7), index=OFFSETS),
    "b, codes by item": lambda: rb.Terms(b=torch.randn(H, 5), index=CODES),
    "b, codes by head": lambda: rb.Terms(b=torch.randn(1, 5), index=HEAD_CODES),
    "b, -inf": lambda: rb.Terms(b=hiding(torch.randn(H, 7)), index=OFFSETS),
    "b, transposed": lambda: rb.Terms(b=torch.randn(H, 7), index=OFFSETS.T),
    "b, given": lambda: rb.Terms(b=torch.randn(H, N, M)),
    "b, given to keys": lambda: rb.Terms(b=torch.randn(B, 1, 1, M)),
    "b, one number": lambda: rb.Terms(b=torch.full((1, 1), 3.0)),
    "b, function": lambda: rb.Terms(b=lambda rows: torch.arange(N * M).view(1, 1, N, M)[:, :, rows] / 9.0),
    "g": lambda: rb.Terms(b=hiding(torch.randn(H, 7)), g=torch.randn(B, H, N), index=OFFSETS),
    "g, one head": lambda: rb.Terms(b=torch.randn(N, M), g=torch.randn(B, 1, N)),
    "K": lambda: rb.Terms(K=torch.randn(H, 7, D), index=OFFSETS),
    "K, one head": lambda: rb.Terms(K=torch.randn(1, 7, D), index=OFFSETS),
    "K, codes by item": lambda: rb.Terms(K=torch.randn(H, 5, D), index=CODES),
    "K, w": lambda: rb.Terms(K=torch.randn(H, 7, D), w=torch.randn(H, D), index=OFFSETS),
    "Q": lambda: rb.Terms(Q=torch.randn(H, 7, D), index=OFFSETS),
    "Q, codes by head": lambda: rb.Terms(Q=torch.randn(B, 1, 5, D), index=HEAD_CODES),
    "u": lambda: rb.Terms(u=torch.randn(H, D)),
    "rotation": lambda: rb.create_encoding("rope", H, D)(Sequence()(N, M)),
    "all": lambda: (
        rb.Terms(b=torch.randn(H, 7), K=torch.randn(H, 7, D), Q=torch.randn(1, 7, D), index=OFFSETS)
        + rb.Terms(b=torch.randn(H, 5), u=torch.randn(1, D), g=torch.randn(B, 1, N), index=CODES)
        + rb.create_encoding("rope", H, D)(Sequence()(N, M))
    ),
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, uncompiled):
    q, k, v = qkv()
    terms = TERMS["all"]()
    mine, reference = both(q, k, v, terms, **MASKS[mask])
    torch.testing.assert_close(mine, reference, rtol=0, atol=2e-6)
    open_one = rb.relative_attention(q, k, v, terms, implementation="reference")
    assert mask in ("open", "left window") or not torch.allclose(mine, open_one)


@pytest.mark.parametrize("name", TERMS)
def test_terms(name, uncompiled):
    q, k, v = qkv()
    terms = TERMS[name]()
    for arguments in ({}, {"is_causal": True}):
        mine, reference = both(q, k, v, terms, **arguments)
        torch.testing.assert_close(mine, reference, rtol=0, atol=2e-6)
        plain = rb.relative_attention(q, k, v, implementation="reference", **arguments)
        assert name == "b, one number" or not torch.allclose(mine, plain, atol=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [{"scale": 0.3}, {"scale": torch.tensor([0.1, 0.2, 0.3, 0.4])}, {"normalize": True, "scale": 5.0}],
    ids=["scale", "scale by head", "normalize"],
)
def test_scales(arguments, uncompiled):
    mine, reference = both(*qkv(), TERMS["all"](), **arguments)
    torch.testing.assert_close(mine, reference, rtol=0, atol=2e-6)


def test_grouped_heads(uncompiled):
    mine, reference = both(*qkv(kv_heads=2), TERMS["all"](), is_causal=True)
    torch.testing.assert_close(mine, reference, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype, uncompiled):
    q, k, v = qkv(dtype=dtype)
    terms = TERMS["b, offsets"]()
    mine, reference = both(q, k, v, terms, is_causal=True)
    exact = rb.relative_attention(*(x.double() for x in (q, k, v)), terms, is_causal=True, implementation="reference")
    assert mine.dtype == dtype
    error, bound = ((x.double() - exact).abs().max() for x in (mine, reference))
    assert error <= 4 * bound


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 3), (3, 0)])
def test_no_tokens(n, m, uncompiled):
    q, k, v = qkv(n, m)
    out = rb.relative_attention(q, k, v, implementation="flex")
    assert out.shape == (B, H, n, D)
    assert not out.any()


def test_grids_and_hops(uncompiled):
    for relation, index in (
        (Grid(3, 3, prefix_tokens=1), Grid(3, 3, prefix_tokens=1)()),
        (Hops(4), Hops(4)(torch.randint(-1, 7, (B, 10, 10)))),
    ):
        encoding = rb.create_encoding("table", H, D, relation)
        torch.nn.init.normal_(encoding.table)
        mine, reference = both(*qkv(10, 10), encoding(index))
        torch.testing.assert_close(mine, reference, rtol=0, atol=2e-6)


REFUSALS = {
    "weights": ({"return_weights": True}, "FlexAttention does not return weights"),
    "dropout": ({"dropout_p": 0.1}, "FlexAttention has no dropout"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_arguments_that_are_refused(name):
    arguments, reason = REFUSALS[name]
    q, k, v = qkv()
    assert IMPLEMENTATIONS["flex"].supports(q, k, v, **arguments) == reason
    with pytest.raises(ValueError, match=f"'flex' cannot compute this: {reason}"):
        rb.relative_attention(q, k, v, implementation="flex", **arguments)


def test_terms_and_tensors_that_are_refused(monkeypatch):
    flex = IMPLEMENTATIONS["flex"]
    q, k, v = qkv()
    assert flex.supports(q, k, v, rb.Terms(V=torch.randn(H, 7, D), index=OFFSETS)).startswith("the term V acts on")
    assert flex.supports(*(x.double() for x in (q, k, v))).endswith("q is float64")
    assert flex.supports(*(x.to("meta") for x in (q, k, v))).endswith("q is on meta")
    # Without a GPU the device's name is all that can be given.
    call = rb.attention.call.Call.of(q[..., :8], k[..., :8], v)
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda"))
    assert flex.refusal(call) == "FlexAttention needs heads of at least 16 on CUDA, and those of q are 8"


@pytest.mark.parametrize("trained", ["q", "k", "v", "b", "K", "u", "g", "function", "angles", "nothing"])
def test_training_on_cpu_is_refused(trained):
    q, k, v = qkv()
    rope = rb.create_encoding("rope", H, D, strength=0.5)
    terms = {
        "b": rb.Terms(b=torch.randn(H, 7), index=OFFSETS),
        "K": rb.Terms(K=torch.randn(H, 7, D), index=OFFSETS),
        "u": rb.Terms(u=torch.randn(H, D)),
        "g": rb.Terms(b=torch.randn(N, M), g=torch.randn(B, H, N)),
        "function": rb.Terms(b=lambda rows: torch.zeros(1, 1, N, M)[:, :, rows]),
    }.get(trained)
    inputs = {"q": q, "k": k, "v": v}
    if trained in inputs:
        inputs[trained].requires_grad_()
    elif terms is not None and trained != "function":
        getattr(terms.entries[0], trained).requires_grad_()
    with torch.enable_grad():
        if trained == "angles":
            terms = rope(Sequence()(N, M))
        reason = IMPLEMENTATIONS["flex"].supports(q, k, v, terms)
    expected = "FlexAttention has no backward pass on CPU; call it under torch.no_grad()"
    assert reason == (None if trained == "nothing" else expected)
    assert IMPLEMENTATIONS["flex"].supports(q, k, v, terms) is None  # without gradients


def test_trained_tensors_infer_on_cpu(uncompiled):
    q, k, v = (x.requires_grad_() for x in qkv())
    for terms in (
        rb.Terms(b=torch.randn(H, N, M).requires_grad_()),
        rb.Terms(b=torch.randn(H, 7).requires_grad_(), K=torch.randn(H, 7, D).requires_grad_(), index=OFFSETS),
    ):
        mine, reference = both(q, k, v, terms)
        torch.testing.assert_close(mine, reference, rtol=0, atol=2e-6)


def test_auto_never_compiles():
    q, k, v = qkv()
    for name in ("b, offsets", "K", "all"):
        explanation = rb.explain(q, k, v, TERMS[name]())
        assert explanation.chosen != "flex"
        assert explanation.reasons["flex"] == '"auto" never compiles; name it to have it'
    assert rb.explain(q, k, v, return_weights=True).reasons["flex"] == "FlexAttention does not return weights"
    asked = rb.explain(q, k, v, implementation="flex")
    assert asked.chosen == "flex"
    assert rb.explain(q, k, v, implementation="folded").reasons["flex"] == "folded was asked for"


def test_auto_leaves_flex_out_wherever_it_stands(monkeypatch):
    monkeypatch.setattr(functional, "IMPLEMENTATIONS", {"flex": IMPLEMENTATIONS["flex"], **IMPLEMENTATIONS})
    assert next(iter(functional.IMPLEMENTATIONS)) == "flex"
    assert rb.explain(*qkv()).chosen == "folded"


def test_masks_of_lengths_alone_are_kept_and_can_be_used_in_training(uncompiled):
    flex_mask._of_offsets.cache_clear()
    q, k, v = qkv()
    with torch.inference_mode():
        first = rb.relative_attention(q, k, v, is_causal=True, implementation="flex")
    assert flex_mask._of_offsets.cache_info().misses == 1
    second = rb.relative_attention(q, k, v, is_causal=True, implementation="flex")
    assert flex_mask._of_offsets.cache_info().hits == 1
    assert torch.equal(first, second)
    kept = flex_mask._of_offsets(True, None, N, M, torch.device("cpu"))
    assert not any(tensor.is_inference() for tensor in (kept.kv_indices, kept.kv_num_blocks))


def test_hidden_blocks_are_left_out():
    q, k, v = qkv(256, 512)
    masks = {
        "causal": ({"is_causal": True}, [[3, 4], [3, 4]]),
        "window": ({"window": (100, 0)}, [[2, 2], [2, 2]]),
        "padding": ({"key_padding_mask": torch.arange(512) >= torch.tensor([[128], [512]])}, [[1, 1], [4, 4]]),
        "documents": ({"document_ids": torch.arange(512).expand(B, 512) // 256}, [[2, 2], [2, 2]]),
    }
    for arguments, blocks in masks.values():
        mask = flex_mask.block_mask(rb.attention.call.Call.of(q, k, v, **arguments))
        total = mask.kv_num_blocks + (0 if mask.full_kv_num_blocks is None else mask.full_kv_num_blocks)
        assert total[:, 0].expand(B, -1).tolist() == blocks


@pytest.mark.slow
def test_compiled_kernels_serve_other_values():
    torch._dynamo.reset()
    q, k, v = qkv()

    def check(terms, **arguments):
        before = counters["stats"]["unique_graphs"]
        mine, reference = both(q, k, v, terms, **arguments)
        torch.testing.assert_close(mine, reference, rtol=0, atol=5e-6)
        return counters["stats"]["unique_graphs"] - before

    assert check(TERMS["b, offsets"](), window=(3, 1)) == 1
    assert check(TERMS["b, offsets"](), window=(2, 2)) == 0  # other values, another window
    assert check(TERMS["b, offsets"](), is_causal=True) == 0
    assert check(TERMS["K"](), document_ids=torch.arange(M).expand(B, M) // 4) == 1
    assert check(TERMS["K"](), document_ids=torch.arange(M).expand(B, M) // 3) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["b, codes by item", "K", "Q, codes by head", "all"])
def test_compiled_terms(name):
    q, k, v = qkv()
    mine, reference = both(q, k, v, TERMS[name](), key_padding_mask=MASKS["all padding"]["key_padding_mask"])
    torch.testing.assert_close(mine, reference, rtol=0, atol=5e-6)


@pytest.mark.slow
def test_compiled_at_several_lengths():
    encoding = rb.create_encoding("deberta", H, D)
    for n in (9, 12, 20):
        mine, reference = both(*qkv(n, n), encoding(Sequence()(n)), is_causal=True)
        torch.testing.assert_close(mine, reference, rtol=0, atol=5e-6)
