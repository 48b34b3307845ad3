"""Which implementation computes a call, and why not another."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import relbias as rb
from relbias.attention import functional
from relbias.attention.functional import IMPLEMENTATIONS
from relbias.relations import Pairs, Sequence

B, H, N, D = 2, 4, 6, 8
NAMES = ["folded", "blockwise", "reference"]


def qkv() -> list[torch.Tensor]:
    return list(torch.randn(3, B, H, N, D).unbind())


def term(name: str) -> rb.Terms:
    """Terms with the one named, and what it needs."""
    index = Sequence(2)(N)
    return {
        "nothing": rb.Terms(),
        "b": rb.Terms(b=torch.randn(H, 5), index=index),
        "dense": rb.Terms(b=torch.randn(N, N)),
        "function": rb.Terms(b=lambda rows: torch.randn(1, 1, len(range(N)[rows]), N)),
        "K": rb.Terms(K=torch.randn(H, 5, D), index=index),
        "Q": rb.Terms(Q=torch.randn(H, 5, D), index=index),
        "V": rb.Terms(V=torch.randn(H, 5, D), index=index),
        "u": rb.Terms(u=torch.randn(H, D)),
        "w": rb.Terms(K=torch.randn(H, 5, D), w=torch.randn(H, D), index=index),
        "g": rb.Terms(b=torch.randn(H, 5), g=torch.randn(B, H, N), index=index),
        "rotation": rb.create_encoding("rope", H, D)(Sequence()(N)),
    }[name]


TERMS = ["nothing", "b", "dense", "function", "K", "Q", "V", "u", "w", "g", "rotation"]


@pytest.mark.parametrize("implementation", NAMES)
@pytest.mark.parametrize("name", TERMS)
def test_each_implementation_takes_every_term(implementation, name):
    q, k, v = qkv()
    assert IMPLEMENTATIONS[implementation].supports(q, k, v, term(name), is_causal=True) is None
    out = rb.relative_attention(q, k, v, term(name), implementation=implementation)
    assert out.shape == q.shape
    assert rb.explain(q, k, v, term(name), implementation=implementation).chosen == implementation


def test_values_with_dropout_are_not_folded():
    q, k, v = qkv()
    explanation = rb.explain(q, k, v, term("V"), dropout_p=0.1)
    reason = "dropout within scaled_dot_product_attention does not tell which weights are left for the term V"
    assert (explanation.chosen, explanation.reasons["folded"]) == ("blockwise", reason)
    for call in (rb.relative_attention, rb.explain):
        with pytest.raises(ValueError, match=f"implementation='folded' cannot compute this: {reason}"):
            call(q, k, v, term("V"), dropout_p=0.1, implementation="folded")
    assert rb.explain(q, k, v, term("K"), dropout_p=0.1).chosen == "folded"


@pytest.mark.parametrize("implementation", NAMES)
def test_weights_come_from_reference_alone(implementation):
    q, k, v = qkv()
    reason = IMPLEMENTATIONS[implementation].supports(q, k, v, return_weights=True)
    assert (reason is None) == (implementation == "reference")
    if reason is not None:
        with pytest.raises(ValueError, match=f"'{implementation}' cannot compute this: {reason}"):
            rb.relative_attention(q, k, v, return_weights=True, implementation=implementation)
    out, weights = rb.relative_attention(q, k, v, return_weights=True)
    torch.testing.assert_close(out, weights @ v)


@pytest.mark.parametrize(
    "arguments", [{}, {"is_causal": True, "window": (2, 0)}, {"dropout_p": 0.1}, {"normalize": True}]
)
@pytest.mark.parametrize("implementation", NAMES)
def test_masks_dropout_and_normalisation_are_never_refused(implementation, arguments):
    q, k, v = qkv()
    arguments = {**arguments, "key_padding_mask": torch.zeros(B, N, dtype=torch.bool), "scale": torch.ones(H)}
    assert IMPLEMENTATIONS[implementation].supports(q, k[:, :2], v[:, :2], term("K"), **arguments) is None


@pytest.mark.parametrize("name", TERMS)
def test_auto_prefers_the_fused_kernel(name):
    q, k, v = qkv()
    explanation = rb.explain(q, k, v, term(name))
    assert explanation.chosen == "folded"
    assert set(explanation.reasons) == {*NAMES, "flex"} - {"folded"}
    for other, reason in explanation.reasons.items():
        expected = "folded comes first"
        if other == "flex":
            expected = {
                "V": "the term V acts on the values",
                "function": "FlexAttention has no backward pass on CPU",
            }.get(name, '"auto" never compiles')
        assert reason.startswith(expected)


@pytest.mark.parametrize("name", ["b", "K", "Q", "V", "u", "w", "g", "dense"])
def test_auto_goes_block_by_block_where_the_mask_is_large(monkeypatch, name):
    monkeypatch.setattr(functional, "_LARGEST_MASK", N * N - 1)
    q, k, v = qkv()
    explanation = rb.explain(q, k, v, term(name))
    assert explanation.chosen == "blockwise"
    assert f"more than {N * N - 1}" in explanation.reasons["folded"]
    expected = rb.relative_attention(q, k, v, term("nothing"), implementation="blockwise")
    torch.testing.assert_close(rb.relative_attention(q, k, v), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["nothing", "rotation"])
@pytest.mark.parametrize("trained", [False, True])
def test_auto_folds_what_needs_no_mask_at_any_length(monkeypatch, name, causal, trained):
    monkeypatch.setattr(functional, "_LARGEST_MASK", 0)
    q, k, v = (x.requires_grad_(trained) for x in qkv())
    assert rb.explain(q, k, v, term(name), is_causal=causal).chosen == "folded"
    if causal:
        assert rb.explain(q, k, v, term(name), is_causal=True, window=(2, 0)).chosen == "blockwise"
        assert rb.explain(q[:, :, 1:], k, v, is_causal=True).chosen == "blockwise"


@pytest.mark.parametrize(
    ("terms", "arguments", "size"),
    [
        ("nothing", {}, 0),
        ("rotation", {}, 0),
        ("b", {}, H * N * N),
        ("b", {"key_padding_mask": torch.zeros(B, N, dtype=torch.bool)}, B * H * N * N),
        ("K", {}, B * H * N * N),
        ("V", {}, B * H * N * N),
        ("nothing", {"key_padding_mask": torch.zeros(B, N, dtype=torch.bool)}, B * N * N),
    ],
)
def test_the_size_of_a_mask_decides(monkeypatch, terms, arguments, size):
    q, k, v = qkv()
    monkeypatch.setattr(functional, "_LARGEST_MASK", size)
    assert rb.explain(q, k, v, term(terms), **arguments).chosen == "folded"
    if size:
        monkeypatch.setattr(functional, "_LARGEST_MASK", size - 1)
        assert rb.explain(q, k, v, term(terms), **arguments).chosen == "blockwise"


def test_a_batch_of_codes_makes_a_mask_per_item(monkeypatch):
    q, k, v = qkv()
    terms = rb.Terms(b=torch.randn(H, 3), index=Pairs(3)(torch.randint(3, (B, N, N))))
    monkeypatch.setattr(functional, "_LARGEST_MASK", B * H * N * N - 1)
    assert rb.explain(q, k, v, terms).chosen == "blockwise"


@pytest.mark.parametrize(
    ("name", "trained", "arguments", "chosen"),
    [
        ("b", "b", {}, "blockwise"),
        ("dense", "b", {}, "blockwise"),
        ("b", "q", {}, "folded"),
        ("b", "b", {"dropout_p": 0.1}, "folded"),  # goes block by block through autograd
        ("b", "b", {"key_padding_mask": torch.zeros(B, N, dtype=torch.bool)}, "folded"),  # differs by item
        ("K", "K", {}, "folded"),
        ("rotation", "q", {}, "folded"),
    ],
)
def test_auto_leaves_a_trained_mask_of_all_items_to_blockwise_on_the_cpu(monkeypatch, name, trained, arguments, chosen):
    q, k, v = qkv()
    terms = term(name)
    (q if trained == "q" else getattr(terms.entries[0], trained)).requires_grad_()
    assert rb.explain(q, k, v, terms, **arguments).chosen == "folded"  # so small a one costs less than a block
    monkeypatch.setattr(functional, "_TRAINED", B * H * N * N - 1)
    explanation = rb.explain(q, k, v, terms, **arguments)
    assert explanation.chosen == chosen
    if chosen == "blockwise":
        assert explanation.reasons["folded"].startswith("its mask would be trained")
    with torch.no_grad():
        assert rb.explain(q, k, v, terms, **arguments).chosen == "folded"


def test_auto_computes_what_it_explains(monkeypatch):
    q, k, v = qkv()
    called = []
    for name, implementation in IMPLEMENTATIONS.items():
        attend = implementation.attend
        monkeypatch.setattr(
            implementation, "attend", lambda call, name=name, attend=attend: called.append(name) or attend(call)
        )
    for name in TERMS:
        rb.relative_attention(q, k, v, term(name))
        assert called.pop() == rb.explain(q, k, v, term(name)).chosen
    rb.relative_attention(q, k, v, implementation="blockwise")
    assert called == ["blockwise"]


def test_an_explanation_reads_as_text():
    q, k, v = qkv()
    lines = str(rb.explain(q, k, v, term("V"), dropout_p=0.1)).splitlines()
    assert lines[0] == "blockwise"
    assert lines[1].startswith("  not folded: dropout within")
    assert lines[2] == "  not reference: blockwise comes first"
    asked = rb.explain(q, k, v, implementation="blockwise")
    assert asked.reasons == dict.fromkeys(("folded", "reference", "flex"), "blockwise was asked for")


def test_unknown_names_answer_with_the_nearest():
    q, k, v = qkv()
    for call in (rb.relative_attention, rb.explain):
        with pytest.raises(ValueError, match="no implementation 'blockwize'; did you mean 'blockwise'"):
            call(q, k, v, implementation="blockwize")
        with pytest.raises(
            ValueError, match="no implementation 'cuda'; known: auto, blockwise, flex, folded, reference"
        ):
            call(q, k, v, implementation="cuda")


def test_explain_and_supports_check_the_call_as_attention_does():
    q, k, v = qkv()
    message = r"attn_mask has shape \(3, 3\)"
    for call in (rb.relative_attention, rb.explain, IMPLEMENTATIONS["folded"].supports):
        with pytest.raises(ValueError, match=message):
            call(q, k, v, attn_mask=torch.zeros(3, 3))


def test_the_list_is_in_the_order_of_auto():
    assert rb.list_implementations() == [*NAMES, "flex"]


@pytest.mark.parametrize(
    "encoding", ["none", "t5", "alibi", "shaw", "rope", partial(rb.encodings.Shaw, values=True)], ids=str
)
def test_sizes_left_open_in_export_decide_nothing(encoding):
    module = rb.RelativeAttention(16, 2, encoding).eval()
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=2)}
    exported = torch.export.export(module, (torch.randn(2, 5, 16),), dynamic_shapes=(sizes,))
    y = torch.randn(7, 9, 16)
    torch.testing.assert_close(exported.module()(y), module(y))


@pytest.mark.parametrize("implementation", NAMES)
def test_shapes_without_values(implementation):
    q = torch.zeros(2, 4, 3, 8, device="meta")
    assert rb.relative_attention(q, q, q, is_causal=True, implementation=implementation).shape == q.shape


def test_explain_names_the_nearest_argument():
    with pytest.raises(TypeError, match="did you mean 'is_causal'"):
        rb.explain(*qkv(), is_casual=True)


def test_block_by_block_under_torch_func(monkeypatch):
    monkeypatch.setattr("relbias.attention.blocks.plain._LOGITS_PER_BLOCK", 10)
    q, k, v = qkv()

    def loss(q, implementation):
        return rb.relative_attention(q, k, v, implementation=implementation).square().sum()

    grads = [torch.func.grad(loss)(q, name) for name in ("blockwise", "reference")]
    torch.testing.assert_close(*grads)
