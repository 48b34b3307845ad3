"""The script for GPUs, run on CPU at toy sizes: its steps, its exit code, and what it says when time is up."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.nn.attention import flex_attention as torchs

PATH = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu(monkeypatch):
    """The script as a module; flex uncompiled, and no call repeated for a better time."""
    monkeypatch.setattr("relbias.attention.flex._kernel", lambda device: torchs.flex_attention)
    monkeypatch.setattr(torchs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr("relbias.bench.timing._SHORTEST", 0.0)
    spec = importlib.util.spec_from_file_location("benchmarks_gpu", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "benchmarks_gpu", module)
    spec.loader.exec_module(module)
    return module


def run(gpu, tmp_path, capsys, *argv):
    code = gpu.main(["--device", "cpu", "--quick", "-o", str(tmp_path / "out"), *argv])
    return code, capsys.readouterr().out.splitlines()


def test_toy_sizes(gpu, tmp_path, capsys):
    code, lines = run(gpu, tmp_path, capsys)
    assert code == 0
    passed = [line for line in lines if line.startswith("passed")]
    for name in ("folded", "blockwise", "reference"):
        for dtype in ("float32", "bfloat16"):
            for encoding in ("none", "t5"):
                assert any(line.startswith(f"passed   {name}, {encoding} over sequence, {dtype}") for line in passed)
    assert len([line for line in passed if "flex, " in line]) == 3
    rows = [line for line in lines if line.startswith("| 17 | ")]
    assert {row.split(" | ")[3] for row in rows} >= {"plain", "folded", "blockwise", "reference", "flex", "mask"}
    assert lines[-1].startswith("nothing failed")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["bench.csv", "bench.png"]


def test_errors_beyond_their_limits_and_faults_fail(gpu, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(gpu.LIMITS, torch.float32, 1e-12)
    attend = gpu.IMPLEMENTATIONS["blockwise"].attend

    def fail(call):
        if call.q.dtype == torch.bfloat16:
            raise RuntimeError("no\nkernel")
        return attend(call)

    monkeypatch.setattr(gpu.IMPLEMENTATIONS["blockwise"], "attend", fail)
    code, lines = run(gpu, tmp_path, capsys)
    assert code == 1
    assert any(line.startswith("FAILED   folded, t5 over sequence, float32, N = 17: ") for line in lines)
    assert any(line.startswith("passed   folded, t5 over sequence, bfloat16") for line in lines)
    assert "FAILED   blockwise, t5 over sequence, bfloat16, N = 17: RuntimeError: no kernel" in lines
    assert "FAILED   t5, N = 17, bfloat16: RuntimeError: no kernel" in lines
    assert lines[-1].startswith("SOMETHING FAILED")


def test_what_does_not_fit_the_time_is_named(gpu, tmp_path, capsys):
    code, lines = run(gpu, tmp_path, capsys, "--seconds", "0")
    assert code == 0
    assert not [line for line in lines if line.startswith("passed")]
    assert "LEFT OUT blockwise, t5 over sequence, bfloat16, N = 17" in lines
    assert "LEFT OUT t5, N = 17, float32" in lines
    assert not (tmp_path / "out").exists()


def test_the_whole_covers_every_term_and_implementation(gpu):
    every = gpu.checks(quick=False)
    for name, implementation in gpu.IMPLEMENTATIONS.items():
        mine = [check for check in every if check.name == name]
        assert {(check.case, check.encoding) for check in mine} == set(gpu.CHECKED)
        assert len(mine) == (len(gpu.CHECKED) + 1 if implementation.compiles else 2 * len(gpu.CHECKED))
    names = set()
    for case, encoding in gpu.CHECKED:
        problem = gpu.CASES[case].make(case, (2, 4, 17, 8))
        names.update(gpu.Attentions(problem, encoding, torch.float32, torch.device("cpu")).terms().names)
    assert names == {"b", "K", "Q", "V", "u", "w", "g", "rotation"}


def test_no_gpu(gpu, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "torch sees no GPU here" in capsys.readouterr().err
