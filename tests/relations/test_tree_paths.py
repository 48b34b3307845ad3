"""Hops and steps in trees against networkx and loops."""

from __future__ import annotations

import bisect

import networkx
import numpy
import pytest
import torch
from hypothesis import given, settings
from tests.relations.trees import forests, path_to_root, syntax_tree

from relbias.relations import (
    Hops,
    Pairs,
    ancestor_codes,
    depth_codes,
    shortest_paths,
    step_codes,
    tree_hops,
    tree_steps,
)


def graph_of(parents):
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(parents)))
    graph.add_edges_from((node, parent) for node, parent in enumerate(parents) if parent >= 0)
    return graph


def step_loop(parents, i, j):
    above_i, above_j = path_to_root(parents, i), path_to_root(parents, j)
    for up, node in enumerate(above_i):
        if node in above_j:
            return up, above_j.index(node)
    return -1, -1


@given(parents=forests())
@settings(max_examples=60, deadline=None)
def test_equal_networkx_and_the_loop(parents):
    n = len(parents)
    tensor = torch.tensor(parents, dtype=torch.int64)
    hops, (up, down) = tree_hops(tensor), tree_steps(tensor)
    lengths = dict(networkx.all_pairs_shortest_path_length(graph_of(parents)))
    for values in (hops, up, down):
        assert values.shape == (n, n)
        assert values.dtype == torch.int16
    codes = step_codes(tensor, 2)
    assert Pairs(3 * 3 + 1)(codes).shape == (n, n)
    for i in range(n):
        for j in range(n):
            expected = step_loop(parents, i, j)
            assert int(hops[i, j]) == lengths[i].get(j, -1)
            assert (int(up[i, j]), int(down[i, j])) == expected
            far = 9 if expected[0] < 0 else 3 * min(expected[0], 2) + min(expected[1], 2)
            assert int(codes[i, j]) == far
    if n:
        assert Hops(3)(hops).shape == (n, n)


def test_a_real_syntax_tree():
    parents = syntax_tree(bisect)
    n = len(parents)
    assert n > 400
    tree = networkx.DiGraph((parent, node) for node, parent in enumerate(parents) if parent >= 0)
    depths = networkx.shortest_path_length(tree, 0)
    pairs = networkx.tree_all_pairs_lowest_common_ancestor(tree, root=0)
    hops, (up, down) = tree_hops(torch.tensor(parents)), tree_steps(torch.tensor(parents))
    expected = numpy.zeros((3, n, n), dtype=numpy.int16)
    for (i, j), common in pairs:
        for first, second in ((i, j), (j, i)):
            steps = depths[first] - depths[common], depths[second] - depths[common]
            expected[:, first, second] = *steps, sum(steps)
    assert torch.equal(torch.stack((up, down, hops)), torch.from_numpy(expected))
    edges = torch.tensor([(node, parent) for node, parent in enumerate(parents) if parent >= 0]).T
    assert torch.equal(hops, shortest_paths(edges, n, directed=False))


def test_a_batch_with_padding_equals_its_trees_alone():
    first, second = torch.tensor([-1, 0, 0, 1, 1, 1, 2]), torch.tensor([2, 2, -1])
    batch = torch.full((2, 7), -1)
    batch[0], batch[1, :3] = first, second
    for function in (tree_hops, lambda p: tree_steps(p)[0], lambda p: tree_steps(p)[1]):
        values = function(batch)
        assert torch.equal(values[0], function(first))
        assert torch.equal(values[1, :3, :3], function(second))
        assert torch.equal(values[1, 3:, 3:], torch.eye(4, dtype=torch.int16) - 1)
        assert (values[1, 3:, :3] == -1).all()
        assert (values[1, :3, 3:] == -1).all()


def test_a_chain_of_3000():
    nodes = torch.arange(3000, dtype=torch.int16)
    up, down = tree_steps(nodes - 1)
    assert torch.equal(up, (nodes[:, None] - nodes).clamp(min=0))
    assert torch.equal(down, (nodes - nodes[:, None]).clamp(min=0))
    assert torch.equal(tree_hops(nodes - 1), (nodes - nodes[:, None]).abs())


def test_steps_tell_ancestors_and_depths():
    torch.manual_seed(0)
    parents = torch.tensor([-1, *(int(torch.randint(node, ())) for node in range(1, 60))])
    up, down = tree_steps(parents)
    on_one_path = (up == 0) | (down == 0)
    assert torch.equal(ancestor_codes(parents, 99), torch.where(on_one_path, 99 + down - up, 199))
    assert torch.equal(depth_codes(parents, 99), 99 + down - up)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0)])
def test_nothing(shape):
    parents = torch.full(shape, -1)
    expected = (*shape, shape[-1])
    assert tree_hops(parents).shape == step_codes(parents, 2).shape == expected


@pytest.mark.parametrize(("limit", "message"), [(-1, "at least 0, got -1"), (181, "at most 180, got 181")])
def test_refusals(limit, message):
    with pytest.raises(ValueError, match=message):
        step_codes(torch.tensor([-1]), limit)
    assert step_codes(torch.tensor([-1, -1]), 180).max() == 181**2


@pytest.mark.parametrize("function", [tree_hops, tree_steps])
def test_refuses_a_cycle(function):
    with pytest.raises(ValueError, match="its own ancestor"):
        function(torch.tensor([1, 0]))
