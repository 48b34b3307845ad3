"""What blockwise's own forward and backward pass compute, for every choice of gradients."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import relbias as rb
from relbias.attention import blockwise
from relbias.attention.blocks import forward, plan
from relbias.attention.blocks.coded_keys import CodedKeys
from relbias.attention.blocks.diagonals import DiagonalKeys
from relbias.attention.blocks.tile import Block, Tile
from relbias.relations import Grid, Pairs, Sequence
from relbias.terms import Entry

B, H, N, M, D, R = 2, 4, 7, 9, 5, 6
SIZES = [10, 30, 2**20]
"""Logits per block: less than two rows, some rows of a head, several heads and items."""


@pytest.fixture(params=SIZES)
def size(request, monkeypatch):
    monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", request.param)


@pytest.fixture
def leaves(draw):
    """Tensors of every part that there is: by diagonals and by codes, per item, per head and for all heads."""
    shapes = {
        "q": (B, H, N, D),
        "k": (B, H, M, D),
        "v": (B, H, M, D),
        "b": (H, 5),
        "K": (1, 5, D),
        "Q": (B, H, 5, D),
        "V": (H, 5, D),
        "b_pairs": (B, 1, R),
        "b_shared": (H, R),
        "K_pairs": (H, R, D),
        "Q_pairs": (1, R, D),
        "V_pairs": (B, 1, R, D),
        "u": (H, D),
        "w": (1, D),
        "g": (B, H, N),
        "b_gated": (1, 5),
        "matrix": (1, H, N, M),
        "mask": (B, 1, N, M),
    }
    return {name: draw(*shape) for name, shape in shapes.items()}


def attend(t, implementation, **arguments):
    generator = torch.Generator().manual_seed(0)
    per_item = Pairs(R)(torch.randint(R, (B, 1, N, M), generator=generator))
    shared = Pairs(R)(torch.randint(R, (N, M), generator=generator))
    offsets = Sequence(2)(N, M)
    terms = rb.Terms.of(
        Entry(b=t["b"], K=t["K"], Q=t["Q"], V=t["V"], u=t["u"], index=offsets),
        Entry(b=t["b_gated"], g=t["g"], index=offsets.T),
        Entry(b=t["b_pairs"], K=t["K_pairs"], Q=t["Q_pairs"], V=t["V_pairs"], w=t["w"], index=per_item),
        Entry(b=t["b_shared"], index=shared),
        Entry(b=t["matrix"]),
    )
    mask = t["mask"]
    return rb.relative_attention(
        t["q"], t["k"], t["v"], terms, attn_mask=mask, implementation=implementation, **arguments
    )


NAMES = ["q", "k", "v", "b", "K", "Q", "V", "b_pairs", "b_shared", "K_pairs", "Q_pairs", "V_pairs"]
NAMES += ["u", "w", "g", "b_gated", "matrix", "mask"]


def gradients(leaves, wanted, implementation, **arguments):
    """The output and the gradients where only some tensors want one."""
    tensors = {name: x.detach().clone().requires_grad_(name in wanted) for name, x in leaves.items()}
    out = attend(tensors, implementation, **arguments)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return [out, *torch.autograd.grad(out, [tensors[name] for name in wanted], cotangent)]


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("arguments", [{}, {"is_causal": True}, {"window": (2, 1)}], ids=["open", "causal", "window"])
def test_every_part_at_once(leaves, arguments):
    ours, expected = (gradients(leaves, NAMES, name, **arguments) for name in ("blockwise", "reference"))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


PADDING = torch.arange(M).expand(B, M) >= torch.tensor([[M], [6]])


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("by", ["codes", "diagonals"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"is_causal": True}, {"window": (2, 1)}, {"key_padding_mask": PADDING}],
    ids=["open", "causal", "window", "padding"],
)
def test_products_of_keys(draw, outcome, monkeypatch, by, arguments):
    """By codes, heads or rows first, or, where they are many, by diagonals; beside another such part."""
    monkeypatch.setattr(plan, "_CODES", 1024 if by == "codes" else 0)
    q, k, v, first, second = draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, D), draw(H, 17, D), draw(1, 17, D)
    used = []
    for part in (CodedKeys, DiagonalKeys):
        add = part.add
        monkeypatch.setattr(part, "add", lambda self, *args, add=add: used.append(type(self)) or add(self, *args))
    results = []
    for implementation in ("blockwise", "reference"):
        terms = rb.Terms(Q=first, index=Sequence(8)(N, M)) + rb.Terms(Q=second, K=first, index=Sequence(8)(N, M).T)
        for wanted in ([q, k, v, first, second], [k], [first, second], [q, v]):
            results.append(outcome(wanted, q, k, v, terms, implementation=implementation, **arguments))
    torch.testing.assert_close(results[:4], results[4:], rtol=0, atol=1e-10)
    assert set(used) == {CodedKeys if by == "codes" else DiagonalKeys}


@pytest.mark.parametrize("many", [False, True])
def test_products_of_keys_are_made_once_for_each_head(monkeypatch, many):
    """Whatever the number of blocks, and where heads go first, for one head at a time."""
    monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 64 * 256)
    q, k, v = torch.randn(3, 1, 2, 256, 4).requires_grad_().unbind()
    index = Pairs(8)(torch.randint(8, (256, 256))) if many else Sequence(3)(256)
    shapes = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket.__name__ == "bmm" and out.shape[-1] in (7, 8):
                shapes.append(tuple(out.shape))
            return out

    with torch.no_grad(), Products():
        terms = rb.Terms(Q=torch.randn(1, 8 if many else 7, 4), index=index)
        rb.relative_attention(q, k, v, terms, implementation="blockwise")
    assert shapes == ([(2, 256, 8)] if many else [(1, 256, 7)] * 2)


@pytest.mark.parametrize("name", NAMES)
def test_only_one_gradient_and_all_but_one(leaves, name, monkeypatch):
    monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 30)
    for wanted in ([name], [other for other in NAMES if other != name]):
        ours, expected = (gradients(leaves, wanted, each) for each in ("blockwise", "reference"))
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("size")
def test_gradcheck(draw):
    q, k, v = draw(1, 2, 4, 3), draw(1, 2, 5, 3), draw(1, 2, 5, 3)
    tables = draw(2, 5), draw(1, 5, 3), draw(2, 5, 3), draw(1, 5, 3)

    def function(q, k, v, b, K, Q, V):
        terms = rb.Terms(b=b, K=K, Q=Q, V=V, index=Sequence(2)(4, 5))
        return rb.relative_attention(q, k, v, terms, is_causal=True, implementation="blockwise")

    assert torch.autograd.gradcheck(function, (q, k, v, *tables))


@pytest.mark.usefixtures("size")
def test_queries_before_every_key(draw, outcome):
    """With more queries than keys the causal mask leaves the first ones nothing."""
    tensors = [draw(B, H, 9, D), draw(B, H, 4, D), draw(B, H, 4, D), draw(H, 5), draw(1, 5, D)]
    for names in (("b",), ("b", "K"), ("b", "V"), ()):
        values = {"b": tensors[3], "K": tensors[4], "V": tensors[4]}
        terms = rb.Terms(**{name: values[name] for name in names}, index=Sequence(2)(9, 4))
        both = [
            outcome(tensors, *tensors[:3], terms, is_causal=True, implementation=i) for i in ("blockwise", "reference")
        ]
        torch.testing.assert_close(*both, rtol=0, atol=1e-10)
        assert (both[0][0][:, :, :5] == 0).all()


def test_queries_before_every_key_in_blocks_of_their_own(draw, outcome, monkeypatch):
    """The block of the others then is the only one, with every key and not every query."""
    monkeypatch.setattr(forward, "_ROWS_OF_MASK", 4)
    tensors = [draw(B, H, 8, D), draw(B, H, 4, D), draw(B, H, 4, D), draw(1, 5, D)]
    terms = rb.Terms(K=tensors[3], index=Sequence(2)(8, 4))
    both = [outcome(tensors, *tensors[:3], terms, is_causal=True, implementation=i) for i in ("blockwise", "reference")]
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("shape", [(N, 1), (1, M), (B, 1, N, 1), (1, 1)])
def test_a_mask_of_one_column_or_row(draw, outcome, shape):
    """Beside a window, so that a block has some of the keys."""
    tensors = [draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, D)]
    hidden = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.3
    both = [
        outcome(tensors, *tensors, attn_mask=~hidden, window=(2, 1), implementation=i)
        for i in ("blockwise", "reference")
    ]
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("name", ["b", "K", "Q", "V"])
def test_a_table_of_two_relations(draw, outcome, name):
    """The same tensor, read by other codes."""
    q, k, v = draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, D)
    table = draw(1, H, R) if name == "b" else draw(1, H, R, D)
    generator = torch.Generator().manual_seed(0)
    indices = [Pairs(R)(torch.randint(R, (N, M), generator=generator)) for _ in range(2)]
    both = []
    for implementation in ("blockwise", "reference"):
        terms = rb.Terms.of(*(Entry(**{name: table}, index=index) for index in indices))
        both.append(outcome([q, k, v, table], q, k, v, terms, implementation=implementation))
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changed", ["padding", "mask", "documents", "codes", "patches", "positions"])
def test_what_the_backward_pass_reads_again_may_not_change(draw, changed):
    given = {
        "padding": torch.zeros(B, N, dtype=torch.bool),
        "mask": torch.ones(N, N, dtype=torch.bool),
        "documents": torch.zeros(B, N, dtype=torch.long),
        "codes": torch.zeros(N, N, dtype=torch.long),
        "patches": torch.zeros(B, N, dtype=torch.long),
        "positions": torch.zeros(B, N, dtype=torch.long),
    }
    table = draw(H, 9)
    indices = (Pairs(9)(given["codes"]), Grid(2, 2)().of(given["patches"]), Sequence(4)(N, N, given["positions"]))
    terms = rb.Terms.of(*(Entry(b=table, index=index) for index in indices))
    masks = {"key_padding_mask": given["padding"], "attn_mask": given["mask"], "document_ids": given["documents"]}
    q = draw(B, H, N, D)
    loss = rb.relative_attention(q, q, q, terms, implementation="blockwise", **masks).sum()
    expected = torch.autograd.grad(loss, [q, table], retain_graph=True)
    assert all(map(torch.equal, torch.autograd.grad(loss, [q, table], retain_graph=True), expected))
    given[changed][0, 0] = 1
    with pytest.raises(RuntimeError, match="changed in place before the backward pass"):
        loss.backward()


def test_masks_and_codes_of_the_inference_mode_serve_in_training(draw):
    with torch.inference_mode():
        padding, codes = torch.zeros(B, N, dtype=torch.bool), torch.zeros(N, N, dtype=torch.long)
    q, table = draw(B, H, N, D), draw(H, 2)
    terms = rb.Terms(b=table, index=Pairs(2)(codes))
    rb.relative_attention(q, q, q, terms, key_padding_mask=padding, implementation="blockwise").sum().backward()
    assert q.grad is not None


def test_a_second_derivative_is_refused(qkv):
    q, k, v = qkv(6, 6)
    out = rb.relative_attention(q, k, v, implementation="blockwise")
    with pytest.raises(RuntimeError, match="cannot be differentiated twice; use 'reference'"):
        torch.autograd.grad(out.sum(), q, create_graph=True)


def test_a_backward_pass_within_autocast_is_as_exact_as_without(qkv):
    leaves = qkv(6, 6, torch.float32)
    out = rb.relative_attention(*leaves, implementation="blockwise")
    expected = torch.autograd.grad(out.sum(), leaves, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(*pair) for pair in zip(torch.autograd.grad(out.sum(), leaves), expected, strict=True))


def test_training_after_inference_mode(qkv):
    encoding = rb.create_encoding("table", 4, 8, relation=rb.relations.Grid(2, 3), dtype=torch.float64)
    leaves, index = qkv(6, 6), rb.relations.Grid(2, 3)()
    with torch.inference_mode():
        before = rb.relative_attention(*leaves, encoding(index), implementation="blockwise")
    out = rb.relative_attention(*leaves, encoding(index), implementation="blockwise")
    out.sum().backward()
    assert torch.equal(out, before)
    assert encoding.table.grad is not None


def test_diagonals_of_a_tile_are_columns():
    tile = Tile(torch.zeros(()), skews=True)
    tile.take(Block(slice(0, 2), slice(1, 3), slice(4, 7), slice(0, 5)))
    tile.values.copy_(torch.arange(2 * 2 * 3 * 5).view(2, 2, 3, 5))
    for i in range(3):
        for j in range(5):
            assert torch.equal(tile.skewed[:, :, i, j - i + 2], tile.values[:, :, i, j])
    assert tile.skewed.sum() == tile.values.sum()  # the padding is zero
    tile.skewed.fill_(1.0)
    tile.clear_padding()
    assert tile.skewed.sum() == 2 * 2 * 3 * 5


@pytest.mark.parametrize("scale", [0.3, torch.tensor([0.3, 0.4, 0.5, 0.6])], ids=["one", "per head"])
@pytest.mark.parametrize("names", [(), ("b",), ("K",), ("K", "w"), ("u",), ("K", "u"), ("Q",), ("Q", "u", "K")])
@pytest.mark.parametrize("rotated", [False, True])
def test_the_scale_is_in_every_product_once(draw, names, scale, rotated):
    q, k, v = draw(B, H, N, 4), draw(B, H, N, 4), draw(B, H, N, 4)
    values = {"b": draw(H, 5), "K": draw(1, 5, 4), "Q": draw(H, 5, 4), "u": draw(H, 4), "w": draw(1, 4)}
    terms = rb.Terms(**{name: values[name] for name in names}, index=Sequence(2)(N))
    if rotated:
        terms = terms + rb.create_encoding("rope", H, 4)(Sequence()(N))
    wanted = [q, k, v, *(values[name] for name in names)]
    scale = scale.double() if isinstance(scale, torch.Tensor) else scale
    both = []
    for name in ("blockwise", "reference"):
        out = rb.relative_attention(q, k, v, terms, scale=scale, implementation=name)
        both.append([out, *torch.autograd.grad(out.sin().sum(), wanted)])
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


def test_views_are_read_where_they_lie(draw):
    """Queries, keys and values that are parts of one projection, and a gradient that is the same everywhere."""
    leaf = draw(B, N, 3, H, D)
    index = Sequence(2)(N)
    table = draw(H, 5)
    both = []
    for name in ("blockwise", "reference"):
        q, k, v = leaf.permute(2, 0, 3, 1, 4).unbind()
        q, k = q.mT.contiguous().mT, k.mT.contiguous().mT
        out = rb.relative_attention(q, k, v, rb.Terms(b=table, index=index), implementation=name)
        both.append([out, *torch.autograd.grad(out.sum(), [leaf, table])])
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


@pytest.mark.parametrize("names", ["", "b", "K", "V"])
def test_values_of_another_size(draw, outcome, names):
    """Which torch's kernel does not take."""
    q, k, v = draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, 3)
    tables = {"b": draw(H, 5), "K": draw(1, 5, D), "V": draw(1, 5, 3)}
    terms = rb.Terms(**{name: tables[name] for name in names}, index=Sequence(2)(N, M))
    leaves = [q, k, v, *(tables[name] for name in names)]
    both = [outcome(leaves, q, k, v, terms, is_causal=True, implementation=i) for i in ("blockwise", "reference")]
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


def test_a_matrix_that_lies_by_columns(draw, outcome):
    q, k, v, matrix = draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, D), draw(1, H, M, N)
    both = [
        outcome([q, k, v, matrix], q, k, v, rb.Terms(b=matrix.mT), implementation=i) for i in ("blockwise", "reference")
    ]
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n", [33, 67])
def test_the_queries_that_are_left_over(draw, outcome, n):
    q, k, v, table = draw(1, 2, n, D), draw(1, 2, 40, D), draw(1, 2, 40, D), draw(2, 101)
    terms = rb.Terms(b=table, index=Sequence(50)(n, 40))
    both = [outcome([q, k, v, table], q, k, v, terms, implementation=i) for i in ("blockwise", "reference")]
    torch.testing.assert_close(*both, rtol=0, atol=1e-10)
