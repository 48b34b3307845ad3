"""Ancestors and siblings against loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import Pairs, ancestor_codes, sibling_codes


def path_to_root(parents, node):
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


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


@st.composite
def forests(draw):
    """Parents before or after their children, several roots."""
    n = draw(st.integers(0, 9))
    order = draw(st.permutations(range(n)))
    parents = [-1] * n
    for place in range(1, n):
        above = draw(st.integers(-1, place - 1))
        parents[order[place]] = order[above] if above >= 0 else -1
    return parents


@given(parents=forests(), limit=st.integers(0, 4), drop_far=st.booleans())
@settings(max_examples=60, deadline=None)
def test_equal_the_loops(parents, limit, drop_far):
    given_parents = torch.tensor(parents, dtype=torch.int8)
    for function, loop in ((ancestor_codes, ancestor_loop), (sibling_codes, sibling_loop)):
        codes = function(given_parents, limit, drop_far)
        assert torch.equal(codes, loop(parents, limit, drop_far))
        assert Pairs(2 * limit + 2)(codes).shape == (len(parents), len(parents))


@pytest.mark.parametrize("function", [ancestor_codes, sibling_codes])
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


def test_a_deep_tree():
    codes = ancestor_codes(torch.arange(-1, 299), 300)
    assert torch.equal(codes, torch.arange(300)[None] - torch.arange(300)[:, None] + 300)


@pytest.mark.parametrize("function", [ancestor_codes, sibling_codes])
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


@pytest.mark.parametrize("parents", [[0], [1, 0], [-1, 2, 3, 1, 1]])
def test_refuses_a_cycle(parents):
    with pytest.raises(ValueError, match="its own ancestor"):
        ancestor_codes(torch.tensor(parents), 2)
