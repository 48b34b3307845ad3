"""PageRank on trees against the formula with an inverse, and networkx."""

from __future__ import annotations

import bisect
import math

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.relations.trees import forests, syntax_tree

from relbias.relations import tree_pageranks


def formula(parents, alpha):
    n = len(parents)
    edges = torch.zeros(n, n, dtype=torch.float64)
    for node, parent in enumerate(parents):
        if parent >= 0:
            edges[node, parent] = edges[parent, node] = 1.0
    degrees = edges.sum(dim=-1)
    steps = edges.mT / degrees.masked_fill(degrees == 0, 1.0)
    inverse = torch.linalg.inv(torch.eye(n, dtype=torch.float64) - (1 - alpha) * steps)
    return -(alpha * inverse + 1e-9).log()


@given(parents=forests(), alpha=st.sampled_from([1e-6, 0.02, 0.15, 0.5, 0.95]))
@settings(max_examples=60, deadline=None)
def test_equals_the_formula(parents, alpha):
    values = tree_pageranks(torch.tensor(parents, dtype=torch.int64), alpha)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values, formula(parents, alpha).float(), rtol=1e-5, atol=1e-5)


def test_a_real_syntax_tree():
    parents = syntax_tree(bisect)
    values = tree_pageranks(torch.tensor(parents))
    torch.testing.assert_close(values, formula(parents, 0.15).float(), rtol=1e-5, atol=1e-5)
    graph = networkx.Graph((node, parent) for node, parent in enumerate(parents) if parent >= 0)
    for start in (0, 7, len(parents) - 1):
        ranks = networkx.pagerank(graph, alpha=0.85, personalization={start: 1.0}, tol=1e-14, max_iter=1000)
        for node, rank in ranks.items():
            assert math.isclose(float(values[node, start]), -math.log(rank + 1e-9), rel_tol=1e-4, abs_tol=1e-4)


def test_a_batch_with_padding_equals_its_trees_alone():
    first, second = torch.tensor([-1, 0, 0, 1, 1, 1, 2]), torch.tensor([2, 2, -1])
    batch = torch.full((2, 7), -1)
    batch[0], batch[1, :3] = first, second
    values = tree_pageranks(batch)
    assert torch.equal(values[0], tree_pageranks(first))
    assert torch.equal(values[1, :3, :3], tree_pageranks(second))
    far = torch.full((4, 4), -math.log(1e-9)).fill_diagonal_(-math.log(0.15))
    torch.testing.assert_close(values[1, 3:, 3:], far)


def test_a_chain_of_3000_has_the_ranks_of_an_endless_one():
    values = tree_pageranks(torch.arange(-1, 2999))
    # Far from the ends, the ranks fall by one factor x with each hop: x = 0.425 (1 + x^2), and their sum is 1.
    x = (1 - math.sqrt(1 - 0.85**2)) / 0.85
    peak = (1 - x) / (1 + x)
    expected = torch.tensor([-math.log(peak * x**hops + 1e-9) for hops in range(200)])
    torch.testing.assert_close(values[1500, 1500:1700], expected)
    torch.testing.assert_close(values[1500:1700, 1500], expected)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0)])
def test_nothing(shape):
    assert tree_pageranks(torch.full(shape, -1)).shape == (*shape, shape[-1])


@pytest.mark.parametrize(
    ("alpha", "message"), [(0.0, "got 0.0"), (1e-17, "of at least 1e-06, got 1e-17"), (1.0, "below 1, got 1.0")]
)
def test_refusals(alpha, message):
    with pytest.raises(ValueError, match=message):
        tree_pageranks(torch.tensor([-1]), alpha)
