"""What memory attention asks for: the largest tensors, how many N x M maps, and how the peak grows with N."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import relbias as rb
from relbias.attention import blockwise
from relbias.bench.memory import peak_memory
from relbias.relations import Pairs, Sequence


class Allocations(TorchDispatchMode):
    """The sizes, in numbers, of the memory that operations ask for, and the operations' names."""

    def __init__(self):
        super().__init__()
        self.sizes, self.names = [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in known:
                self.sizes.append(x.untyped_storage().nbytes() // x.element_size())
        self.names.add(func.overloadpacket.__name__)
        return out


def allocations(name, n, **options):
    encoding = rb.create_encoding(name, 2, 4, **options)
    q, k, v = torch.randn(3, 1, 2, n, 4).requires_grad_().unbind()
    with Allocations() as seen:
        terms = encoding(Sequence()(n))
        out = rb.relative_attention(q, k, v, terms, implementation="blockwise")
        out.backward(torch.ones_like(out))
    return seen


STRUCTURED = {
    "t5": {},
    "alibi": {},
    "rope": {},
    "shaw": {"values": True},
    "music_transformer": {},
    "transformer_xl": {},
}
STRUCTURED["deberta"] = {"position_buckets": 8, "max_relative_positions": 32}


@pytest.mark.parametrize("name", STRUCTURED)
def test_the_memory_asked_for_grows_with_n_and_not_with_its_square(name, monkeypatch):
    sizes = {}
    for n in (256, 512):
        monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 16 * n)
        sizes[n] = allocations(name, n, **STRUCTURED[name]).sizes
    assert max(sizes[512]) < 2.2 * max(sizes[256])
    assert max(sizes[512]) < 512 * 512 / 4


def test_half_the_block_takes_half_the_memory(monkeypatch):
    largest = []
    for rows in (64, 32):
        monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", rows * 1024)
        largest.append(max(allocations("alibi", 1024).sizes))
    assert 1.8 < largest[0] / largest[1] < 2.2


@pytest.mark.parametrize("name", [name for name in STRUCTURED if name != "deberta"])  # Q goes by codes
def test_what_goes_by_diagonals_is_neither_gathered_nor_scattered(name, monkeypatch):
    monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 16 * 256)
    names = allocations(name, 256, **STRUCTURED[name]).names
    assert not names & {"gather", "scatter_add", "scatter_add_", "scatter", "index", "index_put", "index_put_"}
    assert "baddbmm_" in names
    assert not names & {"exp", "exp_", "_softmax"}


def test_a_bias_shared_by_the_batch_is_made_once_for_it(monkeypatch):
    """Forward and backward over a grid, an item at a time: what is as large as the logits of an item is counted."""
    item = 2 * 65 * 65
    monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 4 * item)
    grid = rb.relations.Grid(8, 8, prefix_tokens=1)
    encoding = rb.create_encoding("table", 2, 4, grid)
    q, k, v = torch.randn(3, 4, 2, 65, 4).requires_grad_().unbind()
    with Allocations() as seen:
        out = rb.relative_attention(q, k, v, encoding(grid()), implementation="blockwise")
        out.backward(torch.ones_like(out))
    assert max(seen.sizes) < 1.1 * item
    # The bias, twice; the weights and their gradient, which all items share; the sum of the gradients over the items.
    assert len([size for size in seen.sizes if size >= item]) == 5
    assert "index_select" in seen.names
    assert not seen.names & {"gather", "index"}


B, H, D = 2, 4, 8


def measured(name, n, structured, trained, implementation):
    """The sizes asked for by a call with one term, and its peak, in maps of N x N for every head and item."""
    index = Sequence(3)(n) if structured else Pairs(7)(torch.randint(7, (n, n)))
    table = torch.randn(H, 7, *[D] * (name != "b"), requires_grad=trained)
    q, k, v = torch.randn(3, B, H, n, D).requires_grad_(trained).unbind()

    def run():
        with torch.set_grad_enabled(trained):
            out = rb.relative_attention(q, k, v, rb.Terms(**{name: table}, index=index), implementation=implementation)
            if trained:
                out.backward(torch.ones_like(out))

    with Allocations() as seen:
        run()
    unit = B * H * n * n
    return [size / unit for size in seen.sizes], peak_memory(run, torch.device("cpu")) / 4 / unit


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("name", "bKQV")
def test_blockwise_holds_no_map(name, structured, trained, monkeypatch):
    """Of any term, with and without structure: at twice the length twice the memory, which is half the maps."""
    results = []
    for n in (128, 256):
        monkeypatch.setattr(blockwise, "_LOGITS_PER_BLOCK", 16 * n)
        results.append(measured(name, n, structured, trained, "blockwise"))
    (short, short_peak), (long, long_peak) = results
    assert max(long) < 0.55 * max(short)
    assert long_peak < 0.55 * short_peak
    assert max(long) < 1 / 8  # less than the map of a head


FOLDED = {
    ("b", False): (0, 0.5),  # the mask, which both items share
    ("b", True): (5, 3.0),
    ("K", False): (2, 2.0),
    ("K", True): (8, 3.5),
    ("Q", False): (2, 2.0),
    ("Q", True): (8, 3.5),
    ("V", False): (2, 2.0),
    ("V", True): (4, 3.0),
}
"""Of a term, in inference and in training: how many maps are made, and how many there are at once."""


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize(("name", "trained"), FOLDED)
def test_folded_makes_no_more_maps_than_it_must(name, trained, structured):
    sizes, peak = measured(name, 256, structured, trained, "folded")
    count, most = FOLDED[name, trained]
    assert sum(size >= 1 for size in sizes) == count
    assert max(sizes, default=0.0) < 1.1
    assert most - 0.25 < peak < most + 0.45
