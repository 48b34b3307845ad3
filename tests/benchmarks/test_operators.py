"""The script that shows which operators take the time of a call."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parents[2] / "benchmarks" / "operators.py"


def test_the_operators_of_a_call(capsys):
    spec = importlib.util.spec_from_file_location("benchmarks_operators", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seen = {}
    for arguments in ("plain", "blockwise", "blockwise --forward"):
        argv = ["grid", "table", *arguments.split(), "--shape", "1x2x5x4", "--calls", "3", "--rows", "-1"]
        assert module.main(argv) == 0
        seen[arguments] = capsys.readouterr().out
        assert f"grid table {arguments.split()[0]}, forward" in seen[arguments]
        assert "aten::_scaled_dot_product_flash_attention_for_cpu" in seen[arguments]
    assert "BlockwiseFunctionBackward" in seen["blockwise"]
    assert "Backward" not in seen["blockwise --forward"]
    assert "aten::index_select" not in seen["plain"]
