"""The types of edges as codes."""

from __future__ import annotations

import pytest
import torch

from relbias.relations import Pairs, edge_types


def loop(edges, types, n, num_types, prefix):
    codes = [[num_types] * n for _ in range(n)]
    for (i, j), kind in zip(edges, types, strict=True):
        codes[i][j] = kind
    for i in range(n):
        codes[i][i] = num_types + 1
    total = n + prefix
    return torch.tensor(
        [
            [num_types + 2 if min(i, j) < prefix else codes[i - prefix][j - prefix] for j in range(total)]
            for i in range(total)
        ],
        dtype=torch.long,
    ).view(total, total)


@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("n", "edges", "types"),
    [
        (0, [], []),
        (1, [], []),
        (1, [(0, 0)], [3]),
        (5, [(0, 1), (1, 0), (3, 4), (2, 2)], [3, 1, 0, 2]),  # directed, disconnected, a self loop
    ],
)
def test_equals_the_loop(n, edges, types, dtype, prefix):
    edge_index = torch.tensor(edges, dtype=dtype).view(-1, 2).T  # non-contiguous
    codes = edge_types(edge_index, torch.tensor(types, dtype=dtype), n, 4, prefix_tokens=prefix)
    assert torch.equal(codes, loop(edges, types, n, 4, prefix))
    assert Pairs(7)(codes).shape == (n + prefix, n + prefix)


def test_a_node_and_itself_is_not_a_pair_without_an_edge():
    codes = edge_types(torch.tensor([[0], [1]]), torch.tensor([0]), num_nodes=2, num_types=1)
    assert codes.tolist() == [[2, 0], [1, 2]]


@pytest.mark.parametrize(
    ("edges", "types", "message"),
    [
        ([[0, 0], [1, 1]], [0, 1], "two edges join the same nodes"),
        ([[0], [3]], [0], "nodes from 0 to 3, expected 0 to 2"),
        ([[-1], [2]], [0], "nodes from -1 to 2"),
        ([[0], [1]], [2], "types from 2 to 2, expected 0 to 1"),
        ([[0, 1]], [0, 0], r"edge_index has shape \(2, E\).*got \(1, 2\) and \(2,\)"),
        ([[0.0], [1.0]], [0], "edge_index must be integers, got torch.float32"),
        ([[0], [1]], [True], "the types of edges must be integers, got torch.bool"),
    ],
)
def test_bad_edges(edges, types, message):
    with pytest.raises(ValueError, match=message):
        edge_types(torch.tensor(edges), torch.tensor(types), num_nodes=3, num_types=2)


@pytest.mark.parametrize("sizes", [(-1, 2, 0), (3, 0, 0), (3, 2, -1), (2.0, 2, 0)])
def test_bad_sizes(sizes):
    with pytest.raises(ValueError, match="must be an integer of at least"):
        edge_types(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long), *sizes)
