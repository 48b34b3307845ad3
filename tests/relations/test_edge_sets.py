"""Sets of edge types as bits."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import EdgeSets


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), (4, 5, 2, 3), (0, 0), (4, 0, 3)])
def test_codes_are_the_sets_given(shape, dtype):
    sets = torch.randint(0, 32, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    index = EdgeSets(5)(sets)
    expected = sets.long()
    expected = expected[None, None] if len(shape) == 2 else expected[:, None] if len(shape) == 3 else expected
    assert torch.equal(index.codes(), expected)
    assert torch.equal(index.codes(slice(1, 2)), expected[:, :, 1:2])
    assert (index.num_codes, index.shape) == (32, shape[-2:])
    assert torch.equal(index.types(1, 3).codes(), expected // 2 % 8)
    assert torch.equal(index.types(1, 3).types(2, 1).codes(), expected // 8 % 2)


def test_transposed():
    sets = torch.randint(0, 32, (2, 4, 4), generator=torch.Generator().manual_seed(0))
    assert torch.equal(EdgeSets(5)(sets).types(1, 2).T.codes(), (sets // 2 % 4)[:, None].mT)
    with pytest.raises(ValueError, match="only a square index"):
        _ = EdgeSets(5)(sets[:, :3]).T


def test_from_edges_equals_a_loop():
    first = [(0, 1, 0), (0, 1, 2), (0, 1, 2), (2, 2, 1), (3, 0, 61)]  # several types, one twice, a loop, the last bit
    second = [(1, 0, 5)]
    graphs = []
    for edges in (first, second, []):
        numbers = torch.tensor(edges, dtype=torch.int16).view(-1, 3)
        graphs.append((numbers[:, :2].T, numbers[:, 2]))  # non-contiguous
    codes = EdgeSets(62).from_edges(graphs, num_tokens=4).codes()
    assert codes.shape == (3, 1, 4, 4)
    for graph, edges in enumerate((first, second, [])):
        for i in range(4):
            for j in range(4):
                types = {t for a, b, t in edges if (a, b) == (i, j)}
                assert int(codes[graph, 0, i, j]) == sum(2**t for t in types)


def test_from_edges_of_a_graph_without_tokens():
    nothing = (torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    assert EdgeSets(3).from_edges([nothing], num_tokens=0).shape == (0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EdgeSets(0), "num_types must be an integer of at least 1, got 0"),
        (lambda: EdgeSets(63), "at most 62 types, got 63"),
        (lambda: EdgeSets(3)(torch.tensor([[8]])), "takes sets from 0 to 7, got 8"),
        (lambda: EdgeSets(3)(torch.tensor([[-1]])), "takes sets from 0 to 7, got -1"),
        (lambda: EdgeSets(3)(torch.zeros(2, 2)), "sets must be integers"),
        (lambda: EdgeSets(3).from_edges([], 4), "at least one graph"),
        (lambda: EdgeSets(3).from_edges([(torch.tensor([[0], [4]]), torch.tensor([0]))], 4), "nodes from 0 to 4"),
        (lambda: EdgeSets(3).from_edges([(torch.tensor([[0], [1]]), torch.tensor([3]))], 4), "types from 3 to 3"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
