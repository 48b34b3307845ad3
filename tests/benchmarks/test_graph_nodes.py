"""The script that shows what a graph of one's own size takes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table():
    command = [sys.executable, str(ROOT / "benchmarks" / "graph_nodes.py"), "--quick"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    first, _, head, _, *rows = done.stdout.splitlines()
    assert first == "600 nodes of mean degree 4, 4 heads, 2 layers"
    assert head == "| | MiB | s |"
    cells = {name: numbers for name, *numbers in (row.strip("| ").split(" | ") for row in rows)}
    assert list(cells)[-1] == "a float32 mask (4, N, N), one layer"
    for name in ("a step without relation", "a step with a table over hops", "distances, once"):
        mebibytes, seconds = map(float, cells[name])
        assert 0 <= mebibytes < 300
        assert 0 < seconds < 30
