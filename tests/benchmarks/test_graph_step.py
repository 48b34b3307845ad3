"""The script that shows what relations add to a training step."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "benchmarks" / "graph_step.py"


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(PATH.parent)  # where a script's own imports are found
    spec = importlib.util.spec_from_file_location("benchmarks_graph_step", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bond_is_the_same_in_both_directions(module):
    made = module.graphs(20)
    assert len(made) == 20
    kinds = torch.zeros(module.BONDS)
    for graph in made:
        graph.validate()
        assert graph.is_undirected()  # with its edge_attr
        kinds += graph.edge_attr.bincount(minlength=module.BONDS)
    assert kinds.min() > 0


def test_the_tables(module, capsys, monkeypatch):
    # A step takes 4 s, 5 s, ... in the first round, and twice as long in the second.
    monkeypatch.setattr(
        module, "interleaved", lambda runs, rounds, device: [[4.0 + i, 8.0 + 2 * i] for i in range(len(runs))]
    )
    assert module.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert rows == [
        ["a step with 4 graphs", "ms", "times as long as none"],
        *(
            [name, f"{1500 * (4 + i):.1f}", f"{1 + i / 4:.2f} ({1 + i / 4:.2f}-{1 + i / 4:.2f})"]
            for i, name in enumerate(module.ENCODINGS)
        ),
        ["hops of 4 graphs, made", "ms", "of a step with stored hops"],
        ["in the model", "16500.00", "183.3 % (183.3-183.3)"],
        ["by the transform, graph after graph", "18000.00", "200.0 % (200.0-200.0)"],
    ]


def test_times_are_measured(module, capsys):
    assert module.main(["--quick"]) == 0
    ratios = re.findall(r"\| ([\d.]+) \| ([\d.]+) (?:% )?\(([\d.]+)-([\d.]+)\) \|", capsys.readouterr().out)
    assert len(ratios) == len(module.ENCODINGS) + 2
    for ms, middle, low, high in ratios:
        assert float(ms) > 0
        assert float(low) <= float(middle) <= float(high)


def test_other_outputs_are_not_timed(module, monkeypatch):
    training = module.steps(module.graphs(2))
    monkeypatch.setattr(module, "steps", lambda bare: training | {"hops, stored": lambda: torch.zeros(2, 1)})
    with pytest.raises(RuntimeError, match="stored hops give other outputs"):
        module.main(["--quick"])
