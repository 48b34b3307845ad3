"""The script that measures distances in graphs."""

import importlib.util
import random
import re
from pathlib import Path

import networkx
import pytest
import torch

PATH = Path(__file__).parents[2] / "benchmarks" / "shortest_paths.py"


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("benchmarks_shortest_paths", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_molecules_are_like_molecules(module):
    generator = random.Random(1)
    made = [module.molecule(generator) for _ in range(200)]
    assert 22 < sum(n for n, _ in made) / len(made) < 24
    rings = 0
    for n, edges in made:
        graph = networkx.Graph(edges)
        assert len(graph) == n
        assert networkx.is_connected(graph)
        assert max(dict(graph.degree).values()) <= 4
        assert sorted(edges) == sorted((j, i) for i, j in edges)
        assert len(set(edges)) == len(edges) == 2 * graph.number_of_edges()
        rings += graph.number_of_edges() - n + 1
    assert 1 < rings / len(made) < 3


def test_the_tables(module, capsys, monkeypatch):
    peaks = iter([3.0, 8.0, 7.0, 2.0, 9.0])
    monkeypatch.setattr(module, "peak", lambda name, n: next(peaks))
    assert module.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [row[0] for row in rows if not row[0].startswith("---")] == [
        "20 molecules",
        "relbias, all at once",
        "relbias, graph after graph",
        "scipy",
        "networkx",
        "a graph of 300 nodes",
        "relbias",
        "scipy",
        "scipy, made int16",
        "relbias, at most 5 hops",
        "scipy, at most 5 hops",
    ]
    assert [row[3] for row in rows[8:]] == ["3", "8", "7", "2", "9"]
    for row in rows[2:6] + rows[8:]:
        assert float(row[1]) >= 0
        assert re.fullmatch(r"[\d.]+ \([\d.]+-[\d.]+\)", row[2])


def test_a_peak_is_more_than_the_result_and_not_much_more(module):
    assert 3000**2 * 2 / 2**20 < module.peak("relbias", 3000) < 3 * 3000**2 * 2 / 2**20


def test_wrong_distances_are_not_timed(module, monkeypatch):
    monkeypatch.setattr(module, "shortest_paths", lambda edges, n, batch: torch.zeros(5, 40, 40, dtype=torch.int16))
    with pytest.raises(RuntimeError, match="differ"):
        module.of_molecules(5)
