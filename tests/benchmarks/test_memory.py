"""The script that shows what memory a block takes."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parents[2] / "benchmarks" / "memory.py"


def test_the_table(capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmarks_memory", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HEADS", 2)
    monkeypatch.setattr(module, "SIZE", 4)
    monkeypatch.setattr(module, "BLOCKS", (2**20, 2**15, 2**12))
    assert module.main(["--encodings", "t5", "--lengths", "256,512"]) == 0
    head, _, *rows = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines())
    assert head[3:6] == [f"{size} Ki logits in a block" for size in (1024, 32, 4)]
    assert [row[:2] for row in rows] == [["t5", "256"], ["t5", "512"]]
    for row, whole in zip(rows, (0.5, 2.0), strict=True):
        plain, *blocks, given = map(float, row[2:])
        assert given == whole
        assert plain > 0
        assert blocks[0] > blocks[1] > blocks[2] > 0
