"""The script that shows what training on one large graph takes."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "graph_nodes.py"
ROWS = ["a step without relation", "a step with a table over hops", "distances, once"]


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location("benchmarks_graph_nodes", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(text):
    """By row: resident memory, memory of tensors, seconds."""
    rows = (line.strip("| ").split(" | ") for line in text.splitlines()[4:])
    return {name: [float(number) for number in numbers if number != "-"] for name, *numbers in rows}


def test_the_table(module, capsys, monkeypatch):
    monkeypatch.setattr(module, "measure_apart", module.measure)
    assert module.main(["--nodes", "1100"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("1100 nodes of mean degree 4, 4 heads, 2 layers\n")
    cells = table(text)
    assert list(cells) == [*ROWS, "a float32 mask (4, N, N), one layer"]
    mask = cells.pop("a float32 mask (4, N, N), one layer")
    assert mask == [18, 18]
    tensors = {name: numbers[1] for name, numbers in cells.items() if len(numbers) == 3}
    # Blocks of a fixed size and int8 distances, where each of two layers would keep a mask and its gradient.
    assert 2 < tensors[ROWS[0]] < tensors[ROWS[1]] < mask[0]


@pytest.mark.slow
def test_the_table_of_processes(module, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PATH.parents[1] / "src"))
    assert module.main(["--quick"]) == 0
    cells = table(capsys.readouterr().out)
    assert all(0 <= resident < 300 and 0 < seconds < 60 for resident, *_, seconds in (cells[name] for name in ROWS))
