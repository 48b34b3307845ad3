"""What is captured is what the equation says, and the model computes as if nobody looked."""

from __future__ import annotations

import contextlib
import copy
import math
import threading

import pytest
import torch
from tests.attention.test_reference import TERMS, all_masks, codes, tensors, terms_of  # noqa: F401
from torch import nn
from torch.nn.modules import module as nn_module
from torch.utils.checkpoint import checkpoint

import relbias as rb
from relbias.attention.observe import _observers, in_backward, observe
from relbias.attention.reference import complete, contributions, logits

B, H, HKV, N, M, D = 2, 4, 2, 3, 5, 8
OFFSETS = rb.relations.Sequence(max_distance=2)

pytestmark = pytest.mark.usefixtures("small_blocks")


# flex has no backward pass on CPU.
@pytest.fixture(params=[name for name in rb.list_implementations() if name != "flex"])
def implementation(request):
    return request.param


class Layer(nn.Module):
    """A user's own layer: it keeps nothing but what to call relative_attention with."""

    def __init__(self, terms=None, **arguments):
        super().__init__()
        self.terms, self.arguments = terms, arguments

    def forward(self, q, k, v):
        return rb.relative_attention(q, k, v, self.terms, **self.arguments)


def layer_of(implementation, depth=2, encoding="t5", **options):
    torch.manual_seed(0)
    layers = [rb.RelativeAttention(32, H, encoding, implementation=implementation, **options) for _ in range(depth)]
    return nn.Sequential(*layers)


def tokens(length=7):
    return torch.randn(B, length, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)


def shifted(i, j):
    """The offset of key j from query i, which is one of the last N positions."""
    return j - (i + M - N)


MASKS = {
    "open": ({}, lambda b, i, j: 0.0),
    "causal": ({"is_causal": True}, lambda b, i, j: 0.0 if shifted(i, j) <= 0 else -math.inf),
    "window": ({"window": (1, 1)}, lambda b, i, j: 0.0 if abs(shifted(i, j)) <= 1 else -math.inf),
    "padding": (
        {"key_padding_mask": torch.tensor([[False] * M, [True, False, True, False, False]])},
        lambda b, i, j: -math.inf if b == 1 and j in (0, 2) else 0.0,
    ),
    "documents": (
        {"document_ids": torch.tensor([[0, 0, 1, 1, 2], [3, 3, 3, 3, 3]])},
        lambda b, i, j: 0.0 if b == 1 or [0, 0, 1, 1, 2][i + M - N] == [0, 0, 1, 1, 2][j] else -math.inf,
    ),
    "boolean": (
        {"attn_mask": (torch.arange(N)[:, None] + torch.arange(M)) % 2 == 0},
        lambda b, i, j: 0.0 if (i + j) % 2 == 0 else -math.inf,
    ),
    "float": (
        {"attn_mask": torch.arange(N * M, dtype=torch.float64).view(N, M)},
        lambda b, i, j: float(i * M + j),
    ),
    "empty row": (
        {"attn_mask": torch.tensor([False, True, True])[:, None].expand(N, M)},
        lambda b, i, j: -math.inf if i == 0 else 0.0,
    ),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_by_a_plain_formula_and_weights_of_the_reference(implementation, qkv, draw, kind, dtype):
    q, k, v = qkv(N, M, dtype)
    scale, bias, table = draw(H, dtype=dtype), draw(H, 5, dtype=dtype), draw(1, 5, D, dtype=dtype)
    mask, added = MASKS[kind]
    terms = rb.Terms(b=bias, K=table, index=OFFSETS(N, M))
    arguments = {"scale": scale, **mask}
    layer = Layer(terms, implementation=implementation, **arguments)
    with rb.capture(layer) as captured:
        layer(q, k, v)

    expected = torch.empty(B, H, N, M, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (B, H, N, M))).tolist():
        code = max(-2, min(2, shifted(i, j))) + 2
        query, key = q[b, h, i].double(), k[b, h // (H // HKV), j].double()
        expected[b, h, i, j] = scale[h] * (query @ key + query @ table[0, code].double()) + bias[h, code]
        expected[b, h, i, j] += added(b, i, j)
    _, weights = rb.relative_attention(q, k, v, terms, return_weights=True, **arguments)
    (record,) = captured
    assert record.name == ""
    assert record.logits.dtype == record.weights.dtype == dtype
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(record.logits.double(), expected.detach(), **tolerance)
    torch.testing.assert_close(record.weights, weights.detach(), rtol=0, atol=0)
    assert not record.logits.requires_grad
    assert not record.weights.requires_grad
    if kind == "empty row":
        assert (record.weights[:, :, 0] == 0).all()
        assert (record.logits[:, :, 0] == -math.inf).all()


def test_every_term_and_the_sum_of_the_parts(tensors, codes):  # noqa: F811
    """What the terms add, what the plain product is, and the masks make the logits; softmax makes the weights."""
    terms, _ = terms_of(tensors, codes, TERMS)
    seen = []
    calls = Layer(terms, scale=tensors["scale"], normalize=True, return_weights=True, **all_masks())
    with observe(calls, lambda name, call: seen.append((call, logits(call)))), rb.capture(calls) as captured:
        _, weights = calls(tensors["q"], tensors["k"], tensors["v"])
    ((call, total),) = seen
    whole = complete(call)
    parts = list(contributions(whole))
    assert [name for name, _ in parts] == ["u", "K", "Q", "b", "K", "Q", "b", "u", "K", "Q", "b", "b"]
    q, k = whole.rotated()
    summed = (q @ k.mT) * whole.factor() + sum(part for _, part in parts)
    hidden = total == -math.inf
    assert hidden.any()
    assert not hidden.all()
    added = all_masks()["attn_mask"].expand_as(summed)
    torch.testing.assert_close((summed + added)[~hidden], total[~hidden])
    torch.testing.assert_close(captured[0].weights, weights.detach(), rtol=0, atol=0)


def test_nothing_changes(implementation):
    """Outputs and gradients bit for bit, dropout's draws, the state of the generator, and modes."""

    def run(watched):
        model, x = layer_of(implementation, dropout=0.3), tokens()
        model[1].eval()
        torch.manual_seed(5)
        if watched:
            with rb.capture(model) as captured:
                y = model(x)
            assert [record.name for record in captured] == ["0", "1"]
            sums = captured[0].weights.sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums))  # before dropout
        else:
            y = model(x)
        grads = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
        return [y, torch.rand(1), *grads, torch.tensor([module.training for module in model.modules()])]

    for with_capture, without in zip(run(True), run(False), strict=True):
        assert torch.equal(with_capture, without)


def test_autocast(implementation):
    model, x = layer_of(implementation, depth=1), tokens()
    with torch.autocast("cpu", torch.bfloat16):
        without = model(x)
        with rb.capture(model) as captured:
            y = model(x)
    assert torch.equal(y, without)
    assert captured[0].logits.dtype == torch.float32  # of the rounded queries and keys
    q, k = (
        torch.nn.functional.linear(x.bfloat16(), p.weight.bfloat16(), p.bias.bfloat16())
        .view(B, 7, H, 8)
        .transpose(1, 2)
        .float()
        for p in (model[0].q_proj, model[0].k_proj)
    )
    (entry,) = model[0].encoding(rb.relations.Sequence()(7, 7)).entries
    expected = q @ k.mT / 8**0.5 + entry.b[:, entry.index.codes()[0, 0]]
    torch.testing.assert_close(captured[0].logits, expected.detach(), rtol=1e-5, atol=1e-5)


def test_cache(implementation):
    (attention,), x = layer_of(implementation, depth=1, encoding="rope", num_kv_heads=HKV), tokens()
    with rb.capture(attention) as full:
        attention(x, is_causal=True)
    cache = rb.KVCache()
    with rb.capture(attention) as steps:
        for token in x.split(1, dim=1):
            attention(token, cache=cache, is_causal=True)
    assert [tuple(step.weights.shape) for step in steps] == [(B, H, 1, t + 1) for t in range(7)]
    for t, step in enumerate(steps):
        torch.testing.assert_close(step.weights[:, :, 0], full[0].weights[:, :, t, : t + 1])
        torch.testing.assert_close(step.logits[:, :, 0], full[0].logits[:, :, t, : t + 1])


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_not_recorded_again(reentrant):
    model, x = layer_of("reference"), tokens()
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(in_backward()))
    with rb.capture(model) as plain:
        model(x)
    with rb.capture(model) as captured:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        assert calls == [False, False, True]
        model(x)
    assert [record.name for record in captured] == ["0", "1"] * 2
    assert all(torch.equal(record.logits, plain[i % 2].logits) for i, record in enumerate(captured))


def test_threads_see_their_own():
    model = layer_of("reference")
    barrier, found = threading.Barrier(2), {}

    def run(length):
        with rb.capture(model) as captured:
            barrier.wait()
            for _ in range(3):
                model(tokens(length))
            barrier.wait()
        found[length] = [(record.name, record.weights.shape[-1]) for record in captured]

    threads = [threading.Thread(target=run, args=(length,)) for length in (4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {length: [("0", length), ("1", length)] * 3 for length in (4, 5)}


def test_another_thread_is_not_seen():
    model = layer_of("reference")
    with rb.capture(model) as captured:
        model(tokens())
        thread = threading.Thread(target=model, args=(tokens(),))
        thread.start()
        thread.join()
    assert len(captured) == 2


def test_another_thread_may_leave_a_module_while_this_one_is_in_it(qkv):
    class Waits(Layer):
        def forward(self, q, k, v):
            if threading.current_thread() is threading.main_thread():
                thread = threading.Thread(target=self, args=(q, k, v))
                thread.start()
                thread.join()
            return super().forward(q, k, v)

    model = Waits()
    with rb.capture(model) as captured:
        model(*qkv(N, M, torch.float32))
    assert [record.name for record in captured] == [""]


def test_what_runs_beside_another_threads_model_is_not_of_it():
    model, inside, done = layer_of("reference"), threading.Event(), threading.Event()

    def hold(*_):
        inside.set()
        if threading.current_thread() is not threading.main_thread():
            done.wait(10)

    model[0].register_forward_pre_hook(hold)
    with rb.capture(model) as captured:
        thread = threading.Thread(target=model, args=(tokens(),))
        thread.start()
        assert inside.wait(10)
        rb.relative_attention(*torch.zeros(3, 1, 1, 2, 4))
        done.set()
        thread.join()
        assert captured == []
        model(tokens())


def test_nested_captures():
    model = layer_of("reference")
    with rb.capture(model) as outer:
        model(tokens())
        with rb.capture(model[1]) as inner:
            model(tokens())
    assert [record.name for record in outer] == ["0", "1", "0", "1"]
    assert [record.name for record in inner] == [""]
    assert torch.equal(inner[0].weights, outer[3].weights)


def test_captures_may_end_in_any_order():
    model = layer_of("reference")
    first, second = rb.capture(model), rb.capture(model)
    lists = first.__enter__(), second.__enter__()
    model(tokens())
    first.__exit__(None, None, None)
    model(tokens())
    second.__exit__(None, None, None)
    assert [len(records) for records in lists] == [2, 4]
    assert no_hooks()


def test_a_shared_module_has_its_first_name():
    (attention,) = layer_of("reference", depth=1)
    model = nn.ModuleDict({"a": attention, "b": attention})
    model.forward = lambda x: model["b"](x)
    with rb.capture(model) as captured:
        model(tokens())
    assert [record.name for record in captured] == ["a"]


def no_hooks():
    return not (nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks or _observers())


def test_an_error_inside_leaves_nothing_behind():
    model = layer_of("reference")
    with pytest.raises(ValueError, match="x must have shape"), rb.capture(model) as captured:
        model(torch.zeros(1, 2, 3))
    assert captured == []
    assert no_hooks()
    with rb.capture(model) as captured:
        with pytest.raises(ValueError, match="x must have shape"):
            model(torch.zeros(1, 2, 3))
        rb.relative_attention(*torch.zeros(3, 1, 1, 2, 4))  # outside the model, which nobody left on the stack
        assert captured == []
        model(tokens())
    assert [record.name for record in captured] == ["0", "1"]
    assert no_hooks()


def test_an_interrupted_layer_does_not_name_the_next():
    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = nn.Linear(1, 1)
            self.child.forward = self.interrupt

        def interrupt(self, x):
            raise KeyboardInterrupt

        def forward(self, x):
            with contextlib.suppress(KeyboardInterrupt):
                self.child(x)

    model = nn.Sequential(Parent(), Layer())
    model.forward = lambda q: (model[0](q), model[1](q, q, q))
    with rb.capture(model) as captured:
        model(torch.zeros(1, 1, 2, 4))
        rb.relative_attention(*torch.zeros(3, 1, 1, 2, 4))
    assert [record.name for record in captured] == ["1"]


def test_copies_made_inside_are_free():
    model = layer_of("reference")
    with rb.capture(model) as captured:
        copied = copy.deepcopy(model)
        model(tokens())
    assert torch.equal(copied(tokens()), model(tokens()))
    assert len(captured) == 2
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in (*copied.modules(), *model.modules()))


def test_nothing_that_ran_is_an_error():
    model = layer_of("reference")
    line = r"^no attention of relbias ran in Sequential: call the model itself"
    with pytest.raises(ValueError, match=line), rb.capture(model):
        pass
    with pytest.raises(ValueError, match="no attention of relbias ran in Linear"), rb.capture(nn.Linear(2, 2)):
        model(tokens())


@pytest.mark.filterwarnings(
    "ignore:Using `torch.compile\\(module\\)` when there are global hooks"
)  # it is what is tested
def test_compiled_models_are_not_seen_and_stay_compiled():
    model, x = Layer(implementation="reference"), torch.randn(1, 1, 2, 4)
    wanted = model(x, x, x)
    frames = []

    def backend(graph, inputs):
        frames.append(1)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with pytest.raises(ValueError, match=r"uncompiled \(torch.compile hides"), rb.capture(compiled):
        torch.testing.assert_close(compiled(x, x, x), wanted)
    assert frames == [1]
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(x, x, x), wanted)
    with rb.capture(model):
        model(x, x, x)
    torch.testing.assert_close(compiled(x, x, x), wanted)
    assert frames == [1, 1]
    torch._dynamo.reset()


def test_in_backward():
    seen = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: seen.append(in_backward()))
    assert not in_backward()
    y.backward()
    assert seen == [True]
    assert not in_backward()
