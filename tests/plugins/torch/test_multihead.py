"""The attached module against nn.MultiheadAttention itself, in every convention, and against the plain equation."""

import copy
import math

import pytest
import torch
from torch import nn

import relbias as rb
from relbias.plugins.torch import attach

B, H, N, E = 3, 4, 7, 24


def causal():
    return torch.ones(N, N, dtype=torch.bool).triu(1)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def boolean_mask(*shape):
    """True at what is blocked; no row is blocked as a whole."""
    return (draw(*shape, seed=5) > 0.3) & ~torch.eye(N, dtype=torch.bool)


def padding(batch):
    return (torch.arange(N) >= torch.tensor([N, 4, 6])[:, None])[:batch]


def as_float(mask):
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, -torch.inf)


MASKS = {
    "none": lambda b: {},
    "boolean (N, N)": lambda b: {"attn_mask": boolean_mask(N, N)},
    "boolean (B H, N, N)": lambda b: {"attn_mask": boolean_mask(b * H, N, N)},
    "float (N, N)": lambda b: {"attn_mask": draw(N, N, seed=6)},
    "float (B H, N, N)": lambda b: {"attn_mask": draw(b * H, N, N, seed=6)},
    "padding": lambda b: {"key_padding_mask": padding(b)},
    "float padding": lambda b: {"key_padding_mask": draw(b, N, seed=7)},
    "boolean both": lambda b: {"attn_mask": causal(), "key_padding_mask": padding(b)},
    "float both": lambda b: {"attn_mask": draw(b * H, N, N, seed=6), "key_padding_mask": as_float(padding(b))},
    "boolean and float": lambda b: {"attn_mask": causal(), "key_padding_mask": draw(b, N, seed=7)},
    "float and boolean": lambda b: {"attn_mask": draw(N, N, seed=6), "key_padding_mask": padding(b)},
    "causal": lambda b: {"attn_mask": causal(), "is_causal": True},
    "causal, padding": lambda b: {"attn_mask": causal(), "key_padding_mask": padding(b), "is_causal": True},
    # With neither weights nor padding the hint alone counts; else the mask alone.
    "wrong hint": lambda b: {"attn_mask": boolean_mask(N, N), "is_causal": True},
    "wrong hint, padding": lambda b: {
        "attn_mask": boolean_mask(N, N),
        "key_padding_mask": torch.zeros(b, N, dtype=torch.bool),
        "is_causal": True,
    },
}
LAYOUTS = {"batch first": (True, True), "batch second": (False, True), "no batch": (False, False)}


def inputs(layout, value):
    """(batch_first, B, the tensors to be differentiated, the arguments query, key and value)."""
    batch_first, batched = LAYOUTS[layout]
    shape = ((B, N, E) if batch_first else (N, B, E)) if batched else (N, E)
    x = draw(*shape).requires_grad_()
    if value == "same":
        return batch_first, B if batched else 1, [x], (x, x, x)
    other = draw(*shape, seed=1).requires_grad_()
    return batch_first, B if batched else 1, [x, other], (x, x, other)


def arguments_of(masks, layout, batch):
    arguments = {name: mask.clone() if mask is not True else True for name, mask in MASKS[masks](batch).items()}
    if layout == "no batch" and "key_padding_mask" in arguments:
        arguments["key_padding_mask"] = arguments["key_padding_mask"][0]
    for name in ("attn_mask", "key_padding_mask"):
        if name in arguments and arguments[name].is_floating_point() and not arguments[name].isinf().any():
            arguments[name].requires_grad_()
    return arguments


def results(attention, masks, layout, value, **weights):
    """Output, weights, and the gradients of parameters, inputs and float masks."""
    _, batch, leaves, tensors = inputs(layout, value)
    arguments = arguments_of(masks, layout, batch)
    out, found = attention(*tensors, **arguments, **weights)
    loss = (out * draw(*out.shape, seed=8)).sum()
    if found is not None:
        loss = loss + (found * draw(*found.shape, seed=9)).sum()
    leaves = leaves + [mask for mask in arguments.values() if isinstance(mask, torch.Tensor) and mask.requires_grad]
    own = [parameter for name, parameter in attention.named_parameters() if "encoding" not in name]
    gradients = torch.autograd.grad(loss, own + leaves, allow_unused=True)
    return [out, found, *gradients]


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "weights",
    [{}, {"average_attn_weights": False}, {"need_weights": False}],
    ids=["mean", "per head", "no weights"],
)
@pytest.mark.parametrize(("bias", "value"), [(True, "same"), (False, "same"), (True, "other")])
@pytest.mark.parametrize("training", [False, True])
def test_equals_multihead_attention_at_the_start(masks, layout, weights, bias, value, training):
    host = nn.MultiheadAttention(E, H, bias=bias, batch_first=LAYOUTS[layout][0], dtype=torch.float64).train(training)
    if bias:
        nn.init.normal_(host.in_proj_bias)
        nn.init.normal_(host.out_proj.bias)
    wanted = results(host, masks, layout, value, **weights)
    attach(host, "t5")
    found = results(host, masks, layout, value, **weights)
    assert (found[1] is None) == (wanted[1] is None)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("encoding", ["t5", "shaw", "alibi", "rope", "sum"])
@pytest.mark.parametrize("masks", ["none", "boolean (B H, N, N)", "float and boolean", "causal"])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_equals_the_plain_equation(train, encoding, masks, need_weights):
    """Pair by pair, from the terms alone."""
    attention = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    nn.init.normal_(attention.in_proj_bias)
    attach(attention, {"a": "t5", "b": "shaw"} if encoding == "sum" else encoding)
    train(attention)
    x = draw(B, N, E)
    arguments = MASKS[masks](B)
    index = rb.relations.Sequence()(N)
    terms = attention.encoding({"a": index, "b": index} if encoding == "sum" else index)
    q, k, v = (
        (x @ w.T + b).unflatten(-1, (H, E // H)).transpose(1, 2)
        for w, b in zip(attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True)
    )
    turned = terms.rotation
    tq, tk = (turned.rotate(q, turned.q_angles), turned.rotate(k, turned.k_angles)) if turned else (q, k)
    logits = torch.zeros(B, H, N, N, dtype=torch.float64)
    for h in range(H):
        for i in range(N):
            for j in range(N):
                s = (tq[:, h, i] * tk[:, h, j]).sum(-1) / math.sqrt(E // H)
                for entry in terms.entries:
                    if entry.K is not None:
                        vector = entry.K[:, entry.index.codes()[0, 0, i, j]].expand(H, -1)[h]
                        s = s + q[:, h, i] @ vector / math.sqrt(E // H)
                    if entry.b is not None:
                        s = s + entry.b[h, entry.index.codes()[0, 0, i, j]]
                logits[:, h, i, j] = s
    mask = arguments.get("attn_mask")
    if mask is not None:
        mask = mask.view(B, H, N, N) if mask.ndim == 3 else mask
        logits = logits.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    if "key_padding_mask" in arguments:
        logits = logits.masked_fill(arguments["key_padding_mask"][:, None, None], -torch.inf)
    weights = logits.softmax(-1)
    wanted = (weights @ v).transpose(1, 2).flatten(2) @ attention.out_proj.weight.T + attention.out_proj.bias
    out, found = attention(x, x, x, need_weights=need_weights, average_attn_weights=False, **arguments)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    if need_weights:
        torch.testing.assert_close(found, weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", [torch.bool, torch.float64])
@pytest.mark.parametrize("which", ["attn_mask", "key_padding_mask"])
def test_rows_without_keys_give_zero(need_weights, kind, which):
    attention = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    nn.init.normal_(attention.out_proj.bias)
    blocked = torch.zeros((B * H, N, N) if which == "attn_mask" else (B, N), dtype=torch.bool)
    blocked[:H, 2] = True  # item 0, or with padding items 0 to 2, of which only the first is padded as a whole
    if which == "key_padding_mask":
        blocked = torch.zeros(B, N, dtype=torch.bool)
        blocked[0] = True
    mask = blocked if kind == torch.bool else as_float(blocked)
    x = draw(B, N, E).requires_grad_()
    plain = attention(x, x, x, need_weights=need_weights, **{which: mask})[0]
    empty = plain[0, 2] if which == "attn_mask" else plain[0]
    assert need_weights is False or empty.isnan().all()  # with weights torch gives NaN
    attach(attention, "shaw")
    out, weights = attention(x, x, x, need_weights=need_weights, **{which: mask})
    empty = out[0, 2] if which == "attn_mask" else out[0]
    torch.testing.assert_close(empty, attention.out_proj.bias.expand(empty.shape), rtol=0, atol=1e-12)
    torch.testing.assert_close(out[1:], plain[1:], rtol=0, atol=1e-12)
    if need_weights:
        assert not (weights[0, 2] if which == "attn_mask" else weights[0]).any()
    gradients = torch.autograd.grad(out.square().sum(), [x, *attention.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_dropout_drops_weights():
    attention = nn.MultiheadAttention(E, H, dropout=0.4, batch_first=True, dtype=torch.float64)
    host = copy.deepcopy(attention)
    attach(attention, "t5")
    x = draw(B, 40, E)
    full = attention.eval()(x, x, x, average_attn_weights=False)[1]
    attention.train()
    out, weights = attention(x, x, x, average_attn_weights=False)
    kept = weights != 0
    assert 0.5 < kept.double().mean() < 0.7
    torch.testing.assert_close(weights, torch.where(kept, full / 0.6, 0.0))
    v = (x @ attention.in_proj_weight[2 * E :].T).unflatten(-1, (H, E // H)).transpose(1, 2)
    wanted = (weights @ v).transpose(1, 2).flatten(2) @ attention.out_proj.weight.T
    torch.testing.assert_close(out, wanted)
    outputs = []
    for module in (host, attention):  # without weights torch draws the very same numbers
        torch.manual_seed(0)
        outputs.append(module(x, x, x, need_weights=False)[0])
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("enabled", [True, False])
def test_dropout_with_values(enabled):
    attention = nn.MultiheadAttention(E, H, dropout=0.4, batch_first=True, dtype=torch.float64)
    attach(attention, "shaw", values=True)
    nn.init.normal_(attention.encoding.values)
    x = draw(B, 40, E)
    with torch.set_grad_enabled(enabled):
        out, again = (attention(x, x, x, need_weights=False)[0] for _ in range(2))
    assert (out - again).abs().max() > 1e-3


@pytest.mark.parametrize("need_weights", [False, True])
def test_under_autocast(need_weights):
    attention = nn.MultiheadAttention(E, H, batch_first=True)
    x = draw(B, N, E).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = attention(x, x, x, need_weights=need_weights)
        attach(attention, "t5")
        found = attention(x, x, x, need_weights=need_weights)
    assert found[0].dtype == wanted[0].dtype
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-2, check_dtype=False)


def test_half_precision():
    attention = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.bfloat16)
    x = draw(B, N, E).bfloat16()
    for need_weights in (False, True):
        wanted = attention(x, x, x, need_weights=need_weights)
        attach(attention, "rope")
        found = attention(x, x, x, need_weights=need_weights)
        rb.plugins.torch.detach(attention)
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-2)


def test_grid(train):
    attention = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    grid = rb.relations.Grid(2, 3, prefix_tokens=1)
    attach(attention, "table", relation=grid)
    train(attention)
    x = draw(B, N, E)
    bias = attention.encoding.table[:, grid().codes()[0, 0]]
    out, _ = attention(x, x, x)
    rb.plugins.torch.detach(attention)
    wanted, _ = attention(x, x, x, attn_mask=bias.repeat(B, 1, 1))
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)


def test_views_of_the_same_numbers_are_self_attention():
    attention = nn.MultiheadAttention(E, H)
    attach(attention, "t5")
    x = draw(B, N, E).float()
    out = attention(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1))[0]
    same = x.transpose(0, 1)
    assert torch.equal(out, attention(same, same, same)[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_encoding_is_given_the_input_and_the_layer(layout):
    seen = []

    class Looks(rb.encodings.T5):
        def forward(self, index, *, x=None, attention=None):
            seen.append((x, attention))
            return super().forward(index)

    batch_first, batch, _, tensors = inputs(layout, "other")
    attention = nn.MultiheadAttention(E, H, batch_first=batch_first, dtype=torch.float64)
    attach(attention, Looks)
    attention(*tensors)
    x, layer = seen[-1]
    assert layer is attention
    query = tensors[0] if batch_first else tensors[0].unsqueeze(1) if batch == 1 else tensors[0]
    assert torch.equal(x, query if batch_first else query.transpose(0, 1))


def test_long_inputs_are_exact_as_well(monkeypatch):
    """Without gradients torch's fused attention computes them, also where "auto" would take blocks."""
    attention = nn.MultiheadAttention(E, H, batch_first=True).eval()
    x = draw(B, 40, E).float()
    with torch.no_grad():
        wanted = attention(x, x, x, need_weights=False, attn_mask=torch.zeros(40, 40))[0]
        attach(attention, "t5")
        monkeypatch.setattr("relbias.attention.functional._LARGEST_MASK", 0)
        assert torch.equal(attention(x, x, x, need_weights=False)[0], wanted)
