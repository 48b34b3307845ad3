"""The whole equation, with every term at once, against one pair of tokens at a time; the others against reference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import relbias as rb
from relbias.terms import Entry, Rotation

B, H, HKV, N, M, D, R = 2, 4, 2, 3, 5, 4, 6
CLIPPED = rb.relations.Sequence(max_distance=2)
TERMS = ("b", "K", "Q", "V", "u", "w", "g", "dense", "function", "rotation")


@pytest.fixture
def tensors(draw) -> dict[str, Tensor]:
    """Every tensor of a call; the tables come with and without a batch axis, per head and one for all heads."""
    return {
        "q": draw(B, H, N, D),
        "k": draw(B, HKV, M, D),
        "v": draw(B, HKV, M, D),
        "scale": draw(H),
        "b_tree": draw(B, H, R),
        "K_tree": draw(H, R, D),
        "Q_tree": draw(B, 1, R, D),
        "V_tree": draw(1, R, D),
        "u_tree": draw(1, D),
        "w_tree": draw(H, D),
        "g_tree": draw(B, H, N),
        "b_offset": draw(1, 5),
        "K_offset": draw(B, H, 5, D),
        "Q_offset": draw(H, 5, D),
        "V_offset": draw(B, H, 5, D),
        "K_back": draw(1, 5, D),
        "Q_back": draw(H, 5, D),
        "u_back": draw(H, D),
        "w_back": draw(1, D),
        "dense": draw(H, N, M),
        "g_dense": draw(B, 1, N),
        "function": draw(B, 1, N, M),
        "q_angles": draw(B, H, N, 1),  # one pair turns, two dimensions stay
        "k_angles": draw(1, H, M, 1),
        "factor": draw(H, 1, 1),
    }


@pytest.fixture
def codes() -> Tensor:
    return torch.randint(R, (B, H, N, M), generator=torch.Generator().manual_seed(0))


def terms_of(t: dict[str, Tensor], codes: Tensor, names: tuple[str, ...]) -> tuple[rb.Terms, list[str]]:
    """Given codes, offsets, transposed offsets, a matrix, a function, a rotation; and the names of what is used."""
    used: list[str] = []

    def some(entry: str, *wanted: str) -> dict[str, Tensor]:
        found = {name: f"{name}_{entry}" for name in wanted if name in names}
        used.extend(found.values())
        return {name: t[key] for name, key in found.items()}

    entries = [
        Entry(**some("tree", "b", "K", "Q", "V", "u", "w", "g"), index=rb.relations.Pairs(R)(codes)),
        Entry(**some("offset", "b", "K", "Q", "V"), index=CLIPPED(N, M)),
        Entry(**some("back", "K", "Q", "u", "w"), index=CLIPPED(N, M).T),
    ]
    if "dense" in names:
        used.append("dense")
        entries.append(Entry(b=t["dense"], **some("dense", "g")))
    if "function" in names:
        used.append("function")
        entries.append(Entry(b=lambda rows: 2 * t["function"][:, :, rows]))
    if "rotation" in names:
        used.extend(("q_angles", "k_angles", "factor"))
        entries.append(Entry(rotation=Rotation(t["q_angles"], t["k_angles"], factor=t["factor"])))
    return rb.Terms.of(*(entry for entry in entries if entry.names)), used


def all_masks() -> dict:
    """Every kind of mask; the last query of the first item may attend to nothing."""
    mask = torch.zeros(B, 1, N, M, dtype=torch.float64)
    mask[0, :, -1] = -math.inf
    mask[1, :, 0, 1] = -3.0
    padding = torch.zeros(B, M, dtype=torch.bool)
    padding[1, 0] = True
    ids = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 0]])
    return {
        "attn_mask": mask,
        "key_padding_mask": padding,
        "is_causal": True,
        "window": (3, 1),
        "document_ids": ids,
    }


def loop(t: dict[str, Tensor], codes: Tensor, normalize: bool, masks: dict) -> Tensor:
    """The equation, transcribed: s_ij and o_i of every item, head, query and key."""
    without_batch = ("K_tree", "V_tree", "u_tree", "w_tree", "b_offset", "Q_offset")
    without_batch += ("K_back", "Q_back", "u_back", "w_back", "dense", "factor")
    full = {name: tensor[None] if name in without_batch else tensor for name, tensor in t.items() if name != "scale"}

    def turn(x: Tensor, angle: Tensor, factor: Tensor) -> Tensor:
        cos, sin = factor * angle.cos(), factor * angle.sin()
        return torch.stack([x[0] * cos - x[1] * sin, x[0] * sin + x[1] * cos, x[2], x[3]])

    def unit(x: Tensor) -> Tensor:
        return x / x.square().sum().sqrt() if normalize else x

    out = []
    for batch in range(B):
        for h in range(H):
            group = h // (H // HKV)
            p = {
                name: tensor[min(batch, len(tensor) - 1), group if name in "kv" else min(h, tensor.shape[1] - 1)]
                for name, tensor in full.items()
            }
            for i in range(N):
                logits, values = [], []
                q = unit(p["q"][i])
                for j in range(M):
                    k, distance = unit(p["k"][j]), j - (i + M - N)  # the queries are the last N of M positions
                    r, o = int(codes[batch, h, i, j]), max(-2, min(2, distance)) + 2
                    back = max(-2, min(2, -distance)) + 2
                    factor = p["factor"][0, 0]
                    product = turn(q, p["q_angles"][i, 0], factor) @ turn(k, p["k_angles"][j, 0], factor)
                    product = product + (p["u_tree"] + p["u_back"]) @ k
                    product = product + (q + p["w_tree"]) @ p["K_tree"][r] + k @ p["Q_tree"][r]
                    product = product + q @ p["K_offset"][o] + k @ p["Q_offset"][o]
                    product = product + (q + p["w_back"]) @ p["K_back"][back] + k @ p["Q_back"][back]
                    s = t["scale"][h] * product + p["g_tree"][i] * p["b_tree"][r] + p["b_offset"][o]
                    s = s + p["g_dense"][i] * p["dense"][i, j] + 2 * p["function"][i, j]
                    if masks:
                        added = masks["attn_mask"][batch, 0, i, j]
                        ids = masks["document_ids"][batch]
                        hidden = distance > 0 or distance < -3 or masks["key_padding_mask"][batch, j]
                        if hidden or ids[i + M - N] != ids[j] or added == -math.inf:
                            continue
                        s = s + added
                    logits.append(s)
                    values.append(p["v"][j] + p["V_tree"][r] + p["V_offset"][o])
                if logits:
                    out.append(torch.stack(logits).softmax(dim=0) @ torch.stack(values))
                else:
                    out.append(torch.zeros(D, dtype=torch.float64))
    return torch.stack(out).view(B, H, N, D)


def assert_close(ours, expected, names):
    (out, grads), (expected_out, expected_grads) = ours, expected
    torch.testing.assert_close(out, expected_out, rtol=1e-9, atol=1e-9)
    for name, grad, expected_grad in zip(names, grads, expected_grads, strict=True):
        assert expected_grad.abs().max() > 1e-6, f"{name} has no gradient, so it shows nothing"
        torch.testing.assert_close(
            grad, expected_grad, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("normalize", [False, True], ids=["plain", "normalized"])
def test_reference_is_the_equation(tensors, codes, outcome, masked, normalize):
    masks = all_masks() if masked else {}
    terms, used = terms_of(tensors, codes, TERMS)
    names = ["q", "k", "v", "scale", *used]
    assert set(names) == set(tensors)
    leaves = [tensors[name] for name in names]
    arguments = {"scale": tensors["scale"], "normalize": normalize, **masks}
    ours = outcome(leaves, *leaves[:3], terms, implementation="reference", **arguments)
    expected = loop(tensors, codes, normalize, masks)
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_close(ours, (expected, torch.autograd.grad(expected, leaves, cotangent)), names)


def test_reference_weights(tensors, codes):
    terms, _ = terms_of(tensors, codes, TERMS)
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    without_values, _ = terms_of(tensors, codes, tuple(name for name in TERMS if name != "V"))
    _, weights = rb.relative_attention(q, k, v, terms, return_weights=True, **all_masks())
    out, same = rb.relative_attention(q, k, v, without_values, return_weights=True, **all_masks())
    torch.testing.assert_close(weights, same)
    assert weights.shape == (B, H, N, M)
    sums = torch.ones(B, H, N, dtype=torch.float64)
    sums[0, :, -1] = 0  # the empty row
    torch.testing.assert_close(weights.sum(-1), sums)
    torch.testing.assert_close(out, weights @ v.repeat_interleave(H // HKV, dim=1))


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Each term alone, with what it needs, none, and all."""
    needs = {"w": ("K",), "g": ("b",)}
    return [(), *((*needs.get(name, ()), name) for name in names), names]


CASES = [(implementation, names) for implementation in ("folded", "blockwise") for names in _subsets(TERMS)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
@pytest.mark.parametrize("normalize", [False, True], ids=["plain", "normalized"])
@pytest.mark.parametrize(("implementation", "names"), CASES, ids=lambda value: "+".join(value) if value == () else None)
def test_equals_reference(tensors, codes, outcome, implementation, names, normalize, masked):
    terms, used = terms_of(tensors, codes, names)
    leaf_names = ["q", "k", "v", "scale", *used]
    leaves = [tensors[name] for name in leaf_names]
    arguments = {"scale": tensors["scale"], "normalize": normalize, **(all_masks() if masked else {})}
    expected = outcome(leaves, *leaves[:3], terms, implementation="reference", **arguments)
    ours = outcome(leaves, *leaves[:3], terms, implementation=implementation, **arguments)
    assert_close(ours, expected, leaf_names)


def test_values_of_another_size_than_keys(draw, codes):
    q, k, v, table = draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, 7), draw(H, R, 7)
    terms = rb.Terms(V=table, index=rb.relations.Pairs(R)(codes))
    out, weights = rb.relative_attention(q, k, v, terms, return_weights=True)
    rows = torch.stack([table[h, codes[:, h]] for h in range(H)], dim=1)  # (B, H, N, M, 7)
    expected = torch.einsum("bhij,bhijd->bhid", weights, v[:, :, None] + rows)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("bias_shape", [(H, 1, M), (1, N, 1), (M,), (N, M), (B, H, N, M)])
def test_given_bias_broadcasts(tensors, outcome, implementation, draw, bias_shape):
    bias = draw(*bias_shape)
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    ours = outcome([q, bias], q, k, v, rb.Terms(b=bias), implementation=implementation)
    full = bias.expand(B, H, N, M)
    logits = q @ k.repeat_interleave(H // HKV, dim=1).mT / D**0.5 + full
    expected = logits.softmax(-1) @ v.repeat_interleave(H // HKV, dim=1)
    torch.testing.assert_close(ours[0], expected)
    again = outcome([q, bias], q, k, v, rb.Terms(b=full), implementation="reference")
    torch.testing.assert_close(ours[1], again[1])


def test_infinite_bias_hides(tensors, outcome, implementation):
    """B may be -inf: in part of a row, in a whole row, and under a gate; gradients stay finite."""
    bias = torch.zeros(1, 1, N, M, dtype=torch.float64)
    bias[..., 0, 1:3] = bias[..., 1, :] = -math.inf
    bias.requires_grad_()
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    out, grads = outcome([q, k, v, bias], q, k, v, rb.Terms(b=bias), implementation=implementation)
    visible = rb.relative_attention(q, k, v, attn_mask=(bias > -math.inf), implementation="reference")
    torch.testing.assert_close(out, visible)
    assert (out[:, :, 1] == 0).all()
    assert all(grad.isfinite().all() for grad in grads)


def test_infinite_bias_under_a_gate(tensors, outcome, implementation):
    bias = torch.zeros(1, 1, N, M, dtype=torch.float64)
    bias[..., 0, 1:3] = -math.inf
    q, k, v, g = (tensors[name] for name in ("q", "k", "v", "g_dense"))
    gate = g.detach().abs().requires_grad_()
    with torch.no_grad():
        gate[0, 0, 0] = 0.0  # 0 times -inf
    out, grads = outcome([q, k, v, gate], q, k, v, rb.Terms(b=bias, g=gate), implementation=implementation)
    visible = rb.relative_attention(q, k, v, attn_mask=(bias > -math.inf), implementation="reference")
    torch.testing.assert_close(out, visible)
    assert all(grad.isfinite().all() for grad in grads)
