"""The script that shows what long recordings take."""

import importlib.util
import re
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "long_recording.py"


@pytest.fixture
def module(monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmarks_long_recording", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = {"MELS": 8, "DIM": 8, "HEADS": 2, "CHANNELS": 2, "KERNEL": 3, "CHUNK": 4, "CONTEXT": 8, "MIB": 2**10}
    for name, small in sizes.items():
        monkeypatch.setattr(module, name, small)
    return module


def test_the_table(module, capsys):
    assert module.main(["--minutes", "0.05,0.2", "--depth", "1"]) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head == "| 1 blocks | 0.05 min | 0.2 min |"
    rows = {
        line.strip("| ").split(" | ")[0]: re.findall(r"([\d.]+) MiB, ([\d.]+) s", line) for line in lines if "|" in line
    }
    assert list(rows) == list(module.runs(0.05, 1))
    short, long = ({name: float(cells[i][0]) for name, cells in rows.items()} for i in (0, 1))
    for name in rows:
        if not name.startswith("stream"):
            assert long[name] > 2 * short[name] > 0
    stream = next(name for name in rows if name.startswith("stream"))
    assert long[stream] == short[stream]


def test_a_recording_has_its_length(module, monkeypatch):
    seen = []
    forward = module.rb.models.SpeechConformer.forward
    monkeypatch.setattr(
        module.rb.models.SpeechConformer,
        "forward",
        lambda self, x, n: seen.append((x.shape[1], int(n))) or forward(self, x, n),
    )
    streamed = []
    stream = module.rb.models.SpeechConformer.stream
    monkeypatch.setattr(
        module.rb.models.SpeechConformer,
        "stream",
        lambda self, x, past: streamed.append(x.shape[1]) or stream(self, x, past),
    )
    for run in module.runs(0.05, 1).values():
        run()
    assert seen == [(300, 300)] * 3
    assert sum(streamed) == 300
    assert set(streamed[:-1]) == {16}
