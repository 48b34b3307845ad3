"""Distances in graphs: against networkx, which counts each graph alone, whatever the algorithm."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relbias.relations import shortest_paths
from relbias.relations.dijkstra import dijkstra

module = importlib.import_module("relbias.relations.path_lengths")
breadth_first = importlib.import_module("relbias.relations.breadth_first")
floyd_warshall = importlib.import_module("relbias.relations.floyd_warshall")

SOURCE = Path(__file__).parents[2] / "src"
ALGORITHMS = {"floyd_warshall": 2**15, "breadth_first": 0, "both": 6}
"""Up to how many nodes a graph is computed by Floyd and Warshall."""


def random_graphs(seed: int, most: int, count: int) -> tuple[list[int], list[torch.Tensor]]:
    """Graphs of 0 to `most` nodes, dense or sparse, with loops and parallel edges; places of nodes within each."""
    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    sizes = [integer(0, most) for _ in range(count)]
    edges = []
    for n in sizes:
        number = integer(0, (3 * n) >> integer(0, 2)) if n else 0
        here = torch.randint(max(n, 1), (2, number), generator=generator)
        if n > 2 and integer(0, 1):  # a long way round
            here = torch.cat((here[:, : number // 4], torch.stack((torch.arange(n - 1), torch.arange(1, n)))), 1)
        edges.append(torch.cat((here, here[:, : integer(0, 2)]), 1))
    return sizes, edges


def batched(sizes: list[int], edges: list[torch.Tensor]) -> tuple[torch.Tensor, int, torch.Tensor]:
    starts = torch.tensor([0, *sizes]).cumsum(0).tolist()
    together = [e + start for e, start in zip(edges, starts, strict=False)]
    index = torch.cat([*together, torch.zeros(2, 0, dtype=torch.int64)], 1)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.int64))
    return index, starts[-1], batch


def with_networkx(n: int, edges: torch.Tensor, directed: bool, weights: torch.Tensor | None = None) -> torch.Tensor:
    graph = networkx.MultiDiGraph() if directed else networkx.MultiGraph()
    graph.add_nodes_from(range(n))
    lengths = [1] * edges.shape[1] if weights is None else weights.tolist()
    graph.add_weighted_edges_from((*edge, w) for edge, w in zip(edges.T.tolist(), lengths, strict=True))
    found = torch.full((n, n), -1, dtype=torch.int16 if weights is None else weights.dtype)
    ways = (
        networkx.all_pairs_shortest_path_length(graph)
        if weights is None
        else networkx.all_pairs_dijkstra_path_length(graph)
    )
    for i, distances in ways:
        for j, distance in distances.items():
            found[i, j] = distance
    return found


def padded(matrices: list[torch.Tensor], longest: int) -> torch.Tensor:
    return torch.stack([torch.nn.functional.pad(m, [0, longest - len(m)] * 2, value=-1) for m in matrices])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    most=st.sampled_from([1, 3, 8, 12]),
    directed=st.booleans(),
    algorithm=st.sampled_from(list(ALGORITHMS)),
)
def test_hops_are_those_of_networkx(seed, most, directed, algorithm):
    sizes, edges = random_graphs(seed, most, count=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SMALL", ALGORITHMS[algorithm])
        found = shortest_paths(*batched(sizes, edges), directed=directed)
        for limit in (0, 1, 3, 126, 127):
            limited = shortest_paths(*batched(sizes, edges), directed=directed, max_distance=limit)
            assert limited.dtype == (torch.int8 if limit <= 126 else torch.int16)
            assert torch.equal(limited, found.clamp(max=limit + 1).to(limited.dtype))  # far is not unreachable
    alone = [with_networkx(n, e, directed) for n, e in zip(sizes, edges, strict=True)]
    assert found.dtype == torch.int16
    if sum(sizes):
        last = max(k for k, n in enumerate(sizes) if n) + 1  # a batch does not tell of empty graphs at its end
        assert torch.equal(found, padded(alone[:last], max(sizes)))
    else:
        assert found.numel() == 0


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    directed=st.booleans(),
    small=st.sampled_from([2**15, 0, 6]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_lengths_are_those_of_networkx(seed, directed, small, dtype):
    sizes, edges = random_graphs(seed, most=12, count=6)
    index, num_nodes, batch = batched(sizes, edges)
    weights = torch.rand(index.shape[1], dtype=dtype, generator=torch.Generator().manual_seed(seed))
    weights[::5] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SMALL_WEIGHTED", small)
        found = shortest_paths(index, num_nodes, batch, directed=directed, weights=weights)
    parts = weights.split([e.shape[1] for e in edges])
    alone = [with_networkx(n, e, directed, w) for n, e, w in zip(sizes, edges, parts, strict=True)]
    assert found.dtype == dtype
    if sum(sizes):
        last = max(k for k, n in enumerate(sizes) if n) + 1
        torch.testing.assert_close(found, padded(alone[:last], max(sizes)))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("sizes", [[62, 63, 64, 65], [95, 96, 97, 1], [130, 5, 64, 128]])
def test_sizes_around_the_thresholds(sizes, directed):
    generator = torch.Generator().manual_seed(sum(sizes))
    edges = [torch.randint(n, (2, int(1.3 * n)), generator=generator) for n in sizes]
    found = shortest_paths(*batched(sizes, edges), directed=directed)
    alone = [with_networkx(n, e, directed) for n, e in zip(sizes, edges, strict=True)]
    assert torch.equal(found, padded(alone, max(sizes)))
    for n, e, expected in zip(sizes, edges, alone, strict=True):
        assert torch.equal(shortest_paths(e, n, directed=directed), expected)


@pytest.mark.parametrize("limit", [None, 5, 126, 127, 254, 255, 256, 400])
@pytest.mark.parametrize("directed", [True, False])
def test_a_long_path(limit, directed):
    n = 300  # distances of more than a byte
    edges = torch.stack((torch.arange(n - 2), torch.arange(1, n - 1)))  # the last node is alone
    expected = torch.arange(n) - torch.arange(n)[:, None]
    expected = torch.where(expected < 0, -1, expected) if directed else expected.abs()
    expected[-1] = expected[:, -1] = -1
    expected[-1, -1] = 0
    if limit is not None:
        expected = expected.clamp(max=limit + 1)
    found = shortest_paths(edges, n, directed=directed, max_distance=limit)
    assert torch.equal(found.long(), expected)


@pytest.mark.parametrize("limit", [None, 0, 3, 10, 200])
def test_long_searches_end_elsewhere_where_scipy_is(limit, monkeypatch):
    sizes, edges = random_graphs(1, most=60, count=20)
    monkeypatch.setattr(module, "_SMALL", 0)
    index, num_nodes, batch = batched(sizes, edges)
    by_search = shortest_paths(index, num_nodes, batch, max_distance=limit)
    calls = []
    monkeypatch.setattr(breadth_first, "_LONG", 7)
    monkeypatch.setattr(breadth_first, "dijkstra", lambda *given: calls.append(given) or dijkstra(*given))
    assert torch.equal(shortest_paths(index, num_nodes, batch, max_distance=limit), by_search)
    assert len(calls) > 0
    monkeypatch.setattr(breadth_first, "importlib", Mock(**{"util.find_spec.return_value": None}))
    calls.clear()
    assert torch.equal(shortest_paths(index, num_nodes, batch, max_distance=limit), by_search)
    assert not calls


def test_groups_of_large_graphs(monkeypatch):
    sizes, edges = random_graphs(0, most=200, count=20)
    monkeypatch.setattr(module, "_SMALL", 0)
    whole = {
        (limit, directed): shortest_paths(*batched(sizes, edges), max_distance=limit, directed=directed)
        for directed in (True, False)
        for limit in (None, 4)
    }
    for group, words in ((300, 2**17), (2**19, 1), (300, 60)):
        monkeypatch.setattr(breadth_first, "_GROUP", group)
        monkeypatch.setattr(breadth_first, "_WORDS", words)
        monkeypatch.setattr(breadth_first, "_PAIRS", 700)
        for directed in (True, False):
            for limit in (None, 4):
                found = shortest_paths(*batched(sizes, edges), max_distance=limit, directed=directed)
                assert torch.equal(found, whole[limit, directed])
    monkeypatch.setattr(module, "_SMALL", 200)
    for pairs, step in ((2**20, 100), (2**12, 10**9), (1, 1)):
        monkeypatch.setattr(floyd_warshall, "_PAIRS", pairs)
        monkeypatch.setattr(floyd_warshall, "_STEP", step)
        assert torch.equal(whole[4, True], shortest_paths(*batched(sizes, edges), max_distance=4))


@pytest.mark.parametrize("weights", [None, torch.zeros(0)])
def test_little(weights):
    none = torch.zeros(2, 0, dtype=torch.int64)
    nodes = torch.zeros(0, dtype=torch.int64)
    assert shortest_paths(none, 0, weights=weights).shape == (0, 0)
    assert shortest_paths(none, 0, nodes, weights=weights).shape == (0, 0, 0)
    assert shortest_paths(none, 1, weights=weights).tolist() == [[0]]
    assert shortest_paths(none, 3, torch.tensor([0, 2, 2]), weights=weights).tolist() == [
        [[0, -1], [-1, -1]],
        [[-1, -1], [-1, -1]],
        [[0, -1], [-1, 0]],
    ]


def test_weights_have_a_limit_too():
    edges = torch.tensor([[0, 1], [1, 2]])
    weights = torch.tensor([1.5, 2.0], requires_grad=True)
    found = shortest_paths(edges, 4, weights=weights, max_distance=2)
    assert found.tolist() == [[0, 1.5, 3, -1], [-1, 0, 2, -1], [-1, -1, 0, -1], [-1, -1, -1, 0]]
    assert not found.requires_grad
    assert shortest_paths(edges, 3, weights=weights.detach().bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("limit", [32_766, 32_767, 10**6])
@pytest.mark.parametrize("nodes", [3, 100])
def test_limits_that_no_path_reaches(limit, nodes):
    edges = torch.tensor([[0, 1], [1, 2]])
    for batch in (None, torch.zeros(nodes, dtype=torch.int64)):
        found = shortest_paths(edges, nodes, batch, max_distance=limit)
        assert found.dtype == torch.int16
        assert torch.equal(found, shortest_paths(edges, nodes, batch))


@pytest.mark.parametrize(
    "edges", [torch.zeros(2, 0, dtype=torch.int64), torch.tensor([[1], [1]])], ids=["none", "loop"]
)
@pytest.mark.parametrize(("batch", "message"), [([1, 0], "batch descends"), ([-1, 0], "batch begins with -1")])
def test_batches_in_disorder_are_refused_also_without_edges(edges, batch, message):
    with pytest.raises(ValueError, match=message):
        shortest_paths(edges, 2, torch.tensor(batch))


@pytest.mark.parametrize("wrong", [float("nan"), -0.5, float("inf")])
def test_wrong_weights_are_refused(wrong):
    edges = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="finite and at least 0"):
        shortest_paths(edges, 3, weights=torch.tensor([1.0, wrong]))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        shortest_paths(edges, 3, weights=torch.ones(3))
    with pytest.raises(ValueError, match="floating"):
        shortest_paths(edges, 3, weights=torch.ones(2, dtype=torch.int64))


def test_what_cannot_be_held_is_refused(monkeypatch):
    none = torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"40000 nodes .* 5\.2 GiB; take subgraphs of at most 32767"):
        shortest_paths(none, 40_000)
    monkeypatch.setattr(module, "_memory", lambda device: 10 * 2**30)
    batch = torch.cat((torch.zeros(10_000, dtype=torch.int64), torch.arange(1, 100)))
    with pytest.raises(ValueError, match=r"100 graphs, the largest of 10000 nodes, take 18\.8 GiB .* has 10\.0 GiB"):
        shortest_paths(none, len(batch), batch)


def test_scipy_is_needed_for_large_weighted_graphs_alone():
    script = """if True:
        import sys
        sys.modules["scipy"] = sys.modules["numpy"] = None
        import torch
        from relbias.relations import shortest_paths
        edges = torch.randint(600, (2, 600))
        assert shortest_paths(edges, 600, max_distance=2).shape == (600, 600)
        assert shortest_paths(edges % 20, 20, weights=torch.ones(600)).shape == (20, 20)
        try:
            shortest_paths(edges, 600, weights=torch.ones(600))
        except ImportError as error:
            print(error)
    """
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=False
    )
    assert done.stdout == "scipy is not installed; run: pip install 'relbias[graph]'\n", done.stderr
