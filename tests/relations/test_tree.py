"""Ancestors and siblings against loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.relations.trees import forests, path_to_root

from relbias.relations import TREE_NEIGHBORS, Pairs, ancestor_codes, depth_codes, neighbor_codes, sibling_codes
from relbias.relations.tree_order import forest_of


def code(offset, limit, drop_far):
    """Of a signed distance, or None without a relation."""
    if offset is None or (drop_far and abs(offset) > limit):
        return 2 * limit + 1
    return max(-limit, min(limit, offset)) + limit


def ancestor_loop(parents, limit, drop_far):
    codes = []
    for i in range(len(parents)):
        for j in range(len(parents)):
            offset = None
            if i in path_to_root(parents, j):
                offset = path_to_root(parents, j).index(i)
            elif j in path_to_root(parents, i):
                offset = -path_to_root(parents, i).index(j)
            codes.append(code(offset, limit, drop_far))
    return torch.tensor(codes, dtype=torch.int16).view(len(parents), len(parents))


def sibling_loop(parents, limit, drop_far):
    codes = []
    for i in range(len(parents)):
        for j in range(len(parents)):
            children = [c for c in range(len(parents)) if parents[c] == parents[i]]
            offset = 0 if i == j else None
            if parents[i] >= 0 and j in children:
                offset = children.index(j) - children.index(i)
            codes.append(code(offset, limit, drop_far))
    return torch.tensor(codes, dtype=torch.int16).view(len(parents), len(parents))


def depth_loop(parents, limit, drop_far):
    codes = []
    for i in range(len(parents)):
        for j in range(len(parents)):
            first, second = path_to_root(parents, i), path_to_root(parents, j)
            codes.append(code(len(second) - len(first) if first[-1] == second[-1] else None, limit, drop_far))
    return torch.tensor(codes, dtype=torch.int16).view(len(parents), len(parents))


def neighbor(parents, i, j):
    if i == j:
        return "itself"
    if parents[i] == j:
        return "parent"
    if parents[j] == i:
        return "child"
    children = [c for c in range(len(parents)) if parents[c] == parents[i] >= 0]
    if i in children and j in children:
        step = children.index(j) - children.index(i)
        return {1: "next sibling", -1: "previous sibling"}.get(step, "none")
    return "none"


@given(parents=forests(), limit=st.integers(0, 4), drop_far=st.booleans())
@settings(max_examples=60, deadline=None)
def test_equal_the_loops(parents, limit, drop_far):
    given_parents = torch.tensor(parents, dtype=torch.int8)
    for function, loop in (
        (ancestor_codes, ancestor_loop),
        (sibling_codes, sibling_loop),
        (depth_codes, depth_loop),
    ):
        codes = function(given_parents, limit, drop_far)
        assert torch.equal(codes, loop(parents, limit, drop_far))
        assert Pairs(2 * limit + 2)(codes).shape == (len(parents), len(parents))


@given(parents=forests())
@settings(max_examples=60, deadline=None)
def test_neighbors_equal_the_loop(parents):
    codes = neighbor_codes(torch.tensor(parents, dtype=torch.int64))
    assert codes.dtype == torch.int16
    assert codes.shape == (len(parents), len(parents))
    for i in range(len(parents)):
        for j in range(len(parents)):
            assert TREE_NEIGHBORS[codes[i, j]] == neighbor(parents, i, j)


@pytest.mark.parametrize("function", [ancestor_codes, sibling_codes, depth_codes])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_a_batch_with_padding_equals_its_trees_alone(function, dtype):
    first, second = torch.tensor([-1, 0, 0, 1, 1, 1, 2]), torch.tensor([2, 2, -1])
    batch = torch.full((7, 2), -1, dtype=dtype)
    batch[:, 0], batch[:3, 1] = first, second
    codes = function(batch.T, 2)  # non-contiguous
    assert torch.equal(codes[0], function(first, 2))
    assert torch.equal(codes[1, :3, :3], function(second, 2))
    padding = codes[1, 3:]
    assert torch.equal(padding[:, 3:], torch.where(torch.eye(4, dtype=torch.bool), 2, 5).to(torch.int16))
    assert (padding[:, :3] == 5).all()


def test_a_chain_of_3000():
    codes = ancestor_codes(torch.arange(-1, 2999), 3000)
    nodes = torch.arange(3000, dtype=torch.int16)
    assert torch.equal(codes, nodes - nodes[:, None] + 3000)


def test_a_star_of_3000():
    codes = sibling_codes(torch.tensor([-1] + [0] * 2999), 3000)
    nodes = torch.arange(2999, dtype=torch.int16)
    assert torch.equal(codes[1:, 1:], nodes - nodes[:, None] + 3000)
    assert (codes[0, 1:] == 6001).all()


@pytest.mark.parametrize("function", [ancestor_codes, sibling_codes, depth_codes])
@pytest.mark.parametrize(
    ("parents", "limit", "message"),
    [
        ([-1, 2], 2, "the parents of 2 nodes are from 0 to 1, or -1 for a root, got -1 to 2"),
        ([-2, 0], 2, "got -2 to 0"),
        ([-1.0, 0.0], 2, "parents must be integers, got torch.float32"),
        ([[[-1]]], 2, r"shape \(N,\) or \(B, N\), got \(1, 1, 1\)"),
        ([-1], -1, "max_distance must be an integer of at least 0, got -1"),
        ([-1], 16384, "max_distance must be at most 16383, got 16384"),
    ],
)
def test_refusals(function, parents, limit, message):
    with pytest.raises(ValueError, match=message):
        function(torch.tensor(parents), limit)


@pytest.mark.parametrize("function", [ancestor_codes, sibling_codes, depth_codes])
@pytest.mark.parametrize("parents", [[0], [1, 0], [-1, 2, 3, 1, 1]])
def test_refuses_a_cycle(function, parents):
    with pytest.raises(ValueError, match="its own ancestor"):
        function(torch.tensor(parents), 2)


def test_refuses_more_nodes_than_fit():
    with pytest.raises(ValueError, match="a tree of 32768 nodes has too many"):
        neighbor_codes(torch.full((32768,), -1))
    assert int(forest_of(torch.arange(-1, 32766)).depths.max()) == 32766
