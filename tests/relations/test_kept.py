"""Codes that are kept between calls: of which indices, when, and that nobody writes into them."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import relbias as rb
from relbias.relations import Grid, Hops, Pairs, Sequence, Volume, kept
from relbias.relations.base import ALL_ROWS
from relbias.relations.kept import read_codes

CPU = torch.device("cpu")
NAMES = ["reference", "folded", "blockwise"]


@pytest.fixture(autouse=True)
def nothing_kept():
    kept._all_codes.cache_clear()
    yield
    kept._all_codes.cache_clear()


def made() -> int:
    """How often codes were made to be kept."""
    return kept._all_codes.cache_info().misses


@pytest.mark.parametrize(
    "index",
    [
        Grid(3, 4, prefix_tokens=1)(),
        Grid(3, 4, prefix_tokens=1)(2, 3),
        Grid(3, 4, prefix_tokens=2)().T,
        Grid(3, 4, max_distance=1)(),
        Volume(2, 3, 2)(),
        Sequence(3)(5, 7),
        Sequence(3)(5, 7).T,
        Grid(3, 4)().map(lambda dy, dx: dy.abs() + dx.abs(), 9),
    ],
    ids=lambda index: type(index).__name__,
)
@pytest.mark.parametrize("rows", [ALL_ROWS, slice(1, 4)], ids=str)
def test_they_are_the_codes(index, rows):
    for _ in range(2):
        codes = read_codes(index, rows, CPU)
        assert torch.equal(codes.long(), index.codes(rows, CPU))
    assert made() == 1  # of an index of new codes those that they are made from


def test_equal_indices_share_them_and_others_do_not():
    first = read_codes(Grid(3, 4)(), ALL_ROWS, CPU)
    assert read_codes(Grid(3, 4)(), ALL_ROWS, CPU).data_ptr() == first.data_ptr()
    assert first.dtype == torch.int32
    others = [Grid(3, 4)().T, Grid(4, 3)(), Grid(3, 4, 1)(), Grid(3, 4, max_distance=2)(), Volume(1, 3, 4)()]
    assert len({read_codes(index, ALL_ROWS, CPU).data_ptr() for index in others} - {first.data_ptr()}) == len(others)


@pytest.mark.parametrize(
    "index",
    [
        Pairs(3)(torch.zeros(2, 2, dtype=torch.long)),
        Hops(3)(torch.zeros(2, 2, dtype=torch.long)),
        Sequence(3)(4, 4, torch.arange(4)),
    ],
    ids=lambda index: type(index).__name__,
)
def test_what_holds_tensors_is_not_kept(index):
    assert torch.equal(read_codes(index, ALL_ROWS, CPU), index.codes())
    assert made() == 0


def test_no_more_than_a_few_and_no_large_ones(monkeypatch):
    for side in range(2, 2 + 3 * kept._MOST):
        read_codes(Grid(side, 1)(), ALL_ROWS, CPU)
    assert kept._all_codes.cache_info().currsize == kept._MOST
    kept._all_codes.cache_clear()
    monkeypatch.setattr(kept, "_LARGEST", 12**2 - 1)
    assert read_codes(Grid(3, 4)(), slice(0, 1), CPU).shape == (1, 1, 1, 12)
    assert made() == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encoding", ["table", "shaw", "irpe"])
def test_training_after_inference(name, encoding):
    layer = rb.RelativeAttention(8, 2, encoding, relation=Grid(2, 3), implementation=name)
    x = torch.randn(2, 6, 8)
    with torch.inference_mode():
        before = layer(x)
    assert not read_codes(Grid(2, 3)(), ALL_ROWS, CPU).is_inference()
    after = layer(x)
    after.sum().backward()
    torch.testing.assert_close(after, before.clone())
    assert all(parameter.grad is not None for parameter in layer.encoding.parameters())


@pytest.mark.parametrize(("name", "indices"), [("reference", 1), ("folded", 2), ("blockwise", 2)])
def test_attention_makes_them_once_and_does_not_write_into_them(name, indices):
    """Forward and backward, whatever a call adds beside the codes; the second encoding clips the index."""
    index = Grid(2, 3, prefix_tokens=1)()
    expected = index.codes()
    for arguments in ({}, {"is_causal": True}, {"key_padding_mask": torch.zeros(2, 7, dtype=torch.bool)}):
        for encoding in ("table", "shaw"):
            layer = rb.create_encoding(encoding, 2, 4, Grid(2, 3, prefix_tokens=1))
            q, k, v = torch.randn(3, 2, 2, 7, 4).unbind()
            out = rb.relative_attention(q, k, v, layer(index), implementation=name, **arguments)
            out.sum().backward()
    assert torch.equal(read_codes(index, ALL_ROWS, CPU).long(), expected)
    assert made() == indices  # the reference is plain, and makes them anew


def test_timm_attention_makes_them_once():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=3).eval()
    rb.plugins.timm.attach(model, encoding="table")
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        model(images)
    model(images).sum().backward()
    assert made() == 1


def attend(table: torch.Tensor) -> torch.Tensor:
    q, k, v = torch.ones(3, 2, 2, 6, 4).unbind()
    return rb.relative_attention(q, k, v, rb.Terms(b=table, index=Grid(2, 3)()), implementation="blockwise")


@pytest.mark.filterwarnings("ignore")  # tracing warns of every size that it reads
def test_nothing_is_kept_under_transforms_and_modes():
    table = torch.randn(2, 15)
    expected = attend(table)
    kept._all_codes.cache_clear()
    torch.testing.assert_close(torch.func.vmap(attend)(torch.stack([table, table]))[1], expected)
    torch.func.grad(lambda t: attend(t).sum())(table)
    torch.testing.assert_close(make_fx(attend)(table)(table), expected)
    torch.testing.assert_close(torch.jit.trace(attend, table, check_trace=False)(table), expected)
    with FakeTensorMode():
        assert attend(torch.empty(2, 15)).shape == expected.shape
    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(table), expected)
    meta = torch.device("meta")
    assert read_codes(Grid(2, 3)(), ALL_ROWS, meta).device == meta
    assert made() == 0
    torch.testing.assert_close(attend(table), expected)
    assert made() == 1


@pytest.mark.parametrize("name", NAMES)
def test_values_are_not_looked_at_where_there_are_none(name):
    """In torch's mode for tensors without values, which say that they are on the CPU."""
    with FakeTensorMode():
        q, k, v = torch.empty(3, 2, 2, 6, 4).requires_grad_().unbind()
        some = Grid(2, 3)().of(torch.empty(2, 6, dtype=torch.long))
        terms = rb.Terms(b=torch.empty(2, 7), K=torch.empty(2, 7, 4), g=torch.empty(2, 2, 6), index=Sequence(3)(6))
        terms = terms + rb.Terms(V=torch.empty(1, 15, 4), index=some)
        out = rb.relative_attention(q, k, v, terms, implementation=name)
        out.sum().backward()
        assert out.shape == q.shape


@pytest.mark.parametrize("name", NAMES)
def test_codes_under_vmap(name):
    q, k, v = torch.randn(3, 2, 2, 6, 4).unbind()
    table, codes = torch.randn(2, 3), torch.randint(3, (4, 6, 6))

    def attend(codes):
        return rb.relative_attention(q, k, v, rb.Terms(b=table, index=Pairs(3)(codes)), implementation=name)

    torch.testing.assert_close(torch.vmap(attend)(codes), torch.stack([attend(each) for each in codes]))


def test_a_layer_is_copied_and_pickled_without_them():
    layer = rb.RelativeAttention(8, 2, "table", relation=Grid(6, 6))
    size = len(pickle.dumps(layer))
    y = layer(torch.ones(1, 36, 8))
    assert len(pickle.dumps(layer)) == size
    assert torch.equal(copy.deepcopy(layer)(torch.ones(1, 36, 8)), y)


def test_threads():
    indices = [Grid(3, side)() for side in range(1, 3 * kept._MOST)] * 4
    expected = [index.codes() for index in indices]
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda index: read_codes(index, ALL_ROWS, CPU), indices))
    assert all(torch.equal(mine.long(), other) for mine, other in zip(codes, expected, strict=True))
    assert kept._all_codes.cache_info().currsize <= kept._MOST


def test_codes_of_given_patches_are_not_kept():
    """They may change in place, as a buffer does."""
    patches = torch.tensor([[0, 3]])
    index = Grid(2, 2)().of(patches)
    before = read_codes(index, ALL_ROWS, CPU).clone()
    patches[0, 1] = 1
    assert torch.equal(read_codes(index, ALL_ROWS, CPU), index.codes())
    assert not torch.equal(index.codes(), before)
