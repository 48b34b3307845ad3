"""The script that shows what relative time costs in a Conformer."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "benchmarks" / "conformer_layer.py"


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location("benchmarks_conformer_layer", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables(module, capsys, monkeypatch):
    # A step takes 4 s, 5 s, ... in the first round, and twice as long in the second.
    monkeypatch.setattr(
        module, "interleaved", lambda runs, rounds, device: [[4.0 + i, 8.0 + 2 * i] for i in range(len(runs))]
    )
    assert module.main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    expected = [[module.TORCHAUDIO, "6000 ms"]]
    for i, name in enumerate(module.ENCODINGS, start=1):
        number = f"{1 + i / 4:.2f}"
        expected.append([name, f"{number} ({number}-{number})"])
    size = "width 144, 4 heads"
    assert rows == [["attention, 20 frames", size], *expected, ["whole layer, 20 frames", size], *expected]


def test_times_are_measured(module, capsys):
    assert module.main(["--quick"]) == 0
    ratios = re.findall(r"\| ([\d.]+) \(([\d.]+)-([\d.]+)\) \|", capsys.readouterr().out)
    assert len(ratios) == 2 * len(module.ENCODINGS)
    for middle, low, high in ratios:
        assert 0 < float(low) <= float(middle) <= float(high)


@pytest.mark.parametrize("kind", ["attentions", "layers"])
def test_every_step_makes_all_gradients(module, kind, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "_step", lambda call, layer, x: seen.append((call, layer, x)))
    getattr(module, kind)(16, 2, 5)
    assert len(seen) == 1 + len(module.ENCODINGS)
    for call, layer, x in seen:
        x.requires_grad_()
        out = call(x)
        assert out.shape == x.shape
        out.square().sum().backward()
        assert x.grad is not None
        assert all(parameter.grad is not None for parameter in layer.parameters())
    assert torch.equal(seen[0][2].transpose(0, 1), seen[1][2])
