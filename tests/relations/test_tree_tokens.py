"""Values of tokens from values of nodes, against loops."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import Pairs, ancestor_codes, between_tokens, random_walks, tree_pageranks


@pytest.mark.parametrize("trailing", [(), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int64, torch.float32])
def test_equals_a_loop(trailing, dtype):
    torch.manual_seed(0)
    values = torch.randint(0, 100, (2, 5, 5, *trailing)).to(dtype)
    nodes = torch.tensor([[0, -1, 4, 4, 2, 1, -1], [3, 3, 0, -1, -1, -1, -1]], dtype=torch.int8)
    got = between_tokens(values, nodes, unrelated=7)
    assert got.shape == (2, 7, 7, *trailing)
    assert got.dtype == dtype
    for b in range(2):
        for s in range(7):
            for t in range(7):
                i, j = int(nodes[b, s]), int(nodes[b, t])
                expected = values[b, i, j] if min(i, j) >= 0 else torch.full(trailing, 7, dtype=dtype)
                assert torch.equal(got[b, s, t], expected)
        assert torch.equal(between_tokens(values[b], nodes[b], 7), got[b])


def test_codes_stay_codes():
    codes = between_tokens(ancestor_codes(torch.tensor([-1, 0, 1]), 2), torch.tensor([2, -1, 0]), unrelated=5)
    assert codes.tolist() == [[2, 5, 0], [5, 5, 5], [4, 5, 2]]
    assert Pairs(6)(codes).shape == (3, 3)


def test_gradients_reach_the_nodes():
    values = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    between_tokens(values, torch.tensor([0, 0, -1, 2]), 0.0).sum().backward()
    assert values.grad.tolist() == [[4.0, 0.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 1.0]]


def test_nothing():
    assert between_tokens(torch.zeros(0, 0), torch.tensor([], dtype=torch.int64), 0.0).shape == (0, 0)
    assert between_tokens(torch.zeros(0, 0), torch.tensor([-1]), 3.0).tolist() == [[3.0]]
    assert between_tokens(tree_pageranks(torch.tensor([-1])), torch.tensor([], dtype=torch.int64), 0.0).shape == (0, 0)


@pytest.mark.parametrize(
    ("values", "nodes", "unrelated", "message"),
    [
        (torch.zeros(3, 3), [[[0]]], 0, r"node_of_token must have shape \(T,\) or \(B, T\), got \(1, 1, 1\)"),
        (torch.zeros(3, 3), [0.0], 0, "node_of_token must be integers"),
        (torch.zeros(3, 4), [0], 0, r"shape \(N, N, ...\) for tokens of shape \(1,\), got \(3, 4\)"),
        (torch.zeros(3, 3), [[0], [0]], 0, r"shape \(2, N, N, ...\) for tokens of shape \(2, 1\), got \(3, 3\)"),
        (torch.zeros(1, 3, 3), [[0], [0]], 0, r"got \(1, 3, 3\)"),
        (torch.zeros(3, 3), [0, 3], 0, "the 3 nodes of tokens are from 0 to 2, or -1 for none, got 0 to 3"),
        (torch.zeros(3, 3), [-2], 0, "got -2 to -2"),
        (torch.zeros(3, 3, dtype=torch.int8), [0], 128, "unrelated must be a value of torch.int8, got 128"),
        (torch.zeros(3, 3, dtype=torch.int8), [0], 0.5, "unrelated must be a value of torch.int8, got 0.5"),
        (torch.zeros(3, 3, dtype=torch.int16), [0], float("inf"), "unrelated must be a value of torch.int16, got inf"),
        (torch.zeros(3, 3, dtype=torch.int16), [0], float("nan"), "unrelated must be a value of torch.int16, got nan"),
        (torch.zeros(3, 3, dtype=torch.int16), [0], None, "unrelated must be a value of torch.int16, got None"),
        (torch.zeros(3, 3, dtype=torch.float16), [0], 1e6, "unrelated must be a value of torch.float16, got 1000000.0"),
        (torch.zeros(3, 3) > 0, [0], 7, "unrelated must be a value of torch.bool, got 7"),
    ],
)
def test_refusals(values, nodes, unrelated, message):
    with pytest.raises(ValueError, match=message):
        between_tokens(values, torch.tensor(nodes), unrelated)


def test_lists_and_what_a_dtype_holds():
    assert between_tokens([[1, 2], [3, 4]], [1, -1], 0).tolist() == [[4, 0], [0, 0]]
    with pytest.raises(ValueError, match=r"for tokens of shape \(2,\), got \(1, 2\)"):
        between_tokens([[1, 2]], [1, -1], 0)
    for dtype, unrelated in (
        (torch.float16, -float("inf")),
        (torch.int8, -128),
        (torch.int64, 2.0**40),
        (torch.bool, True),
        (torch.complex64, 2),
    ):
        got = between_tokens(torch.zeros(1, 1, dtype=dtype), torch.tensor([-1]), unrelated)
        assert got.dtype == dtype
        assert got.item() == unrelated


def test_features():
    walks = random_walks(torch.tensor([[0, 1], [1, 0]]), 3)
    assert torch.equal(between_tokens(walks, torch.tensor([1, 0]), 0.0), walks.flip(0, 1))
