"""relbias bench at tiny sizes: the table, the CSV file, the picture, and errors before anything is measured."""

import csv
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from relbias.bench import Row
from relbias.cli import bench as bench_command
from relbias.cli import main as cli


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Calls are not repeated: here their times need not be good."""
    monkeypatch.setattr("relbias.bench.timing._SHORTEST", 0.0)


@pytest.fixture
def bench(tmp_path, capsys):
    def run(*argv):
        assert cli.main(["bench", *argv, "-o", str(tmp_path / "new" / "out")]) == 0
        with (tmp_path / "new" / "out" / "bench.csv").open(encoding="utf-8") as file:
            return list(csv.DictReader(file)), capsys.readouterr().out

    return run


def test_table_csv_and_picture(bench, tmp_path):
    small = ["--shapes", "1x2x16x8,1x2x32x8", "--rounds", "1"]
    rows, out = bench(*small, "--encodings", "rope,shaw", "--dtypes", "bfloat16", "--implementations", "folded")
    assert set(rows[0]) == set(Row.__dataclass_fields__)
    measured = [(r["tokens"], r["encoding"], r["implementation"], r["direction"]) for r in rows]
    assert measured == [
        (tokens, encoding, name, direction)
        for tokens in ("16", "32")
        for encoding in ("rope", "shaw")
        for direction in ("forward", "forward + backward")
        for name in ("plain", "folded")
    ]
    assert {(row["dtype"], row["level"], row["device"], row["rounds"]) for row in rows} == {
        ("bfloat16", "attention", "cpu", "1")
    }
    assert (tmp_path / "new" / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert out.count("sequence, attention, (B, H, N, D) = (1, 2, 32, 8), bfloat16") == 1
    lines = [line for line in out.splitlines() if line.startswith(("| rope", "| shaw"))]
    assert len(lines) == len(rows)
    assert all(line.count("|") == 9 for line in lines)


def test_layers_beside_those_of_others(bench):
    rows, _ = bench("--shapes", "1x2x16x8", "--rounds", "1", "--encodings", "t5", "--levels", "attention,layer")
    assert {(row["level"], row["implementation"]) for row in rows} == {
        *(("attention", name) for name in ("plain", "folded", "blockwise", "mask", "kept mask")),
        *(("layer", name) for name in ("plain", "folded", "blockwise")),
        ("layer", "transformers T5Attention"),
        ("layer", "x-transformers RelativePositionBias"),
    }


def test_numbers_in_the_table():
    row = Row("attention", "long", 1, 8, 4096, 64, "float32", "cpu", "t5", "folded", "forward", 7)
    assert bench_command.cells(replace(row, note="no")) == ["t5", "folded", "forward", "-", "-", "-", "-", "no"]
    numbers = {"time_ms": 1387.4, "memory_mib": 0.01234, "memory_ratio": 117.849, "error": 9.4e-7}
    ratios = {"time_ratio": 3.069, "time_ratio_low": 3.0, "time_ratio_high": 3.1}
    cells = bench_command.cells(replace(row, **numbers, **ratios))
    assert cells[3:] == ["1387", "3.07 (3.00 to 3.10)", "0.0123", "117.85", "9e-07"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            [],
            [
                *(("sequence", (2, 8, 1024, 64), name) for name in ("t5", "alibi", "rope", "shaw")),
                ("grid", (8, 6, 197, 64), "table"),
                ("graph", (64, 8, 23, 16), "table"),
            ],
        ),
        (
            ["--encodings", "rope_axial,shaw"],
            [("grid", (8, 6, 197, 64), "rope_axial"), ("sequence", (2, 8, 1024, 64), "shaw")],
        ),
        (
            ["--encodings", "t5,table", "--lengths", "9,10"],
            [("sequence", (2, 8, n, 64), name) for n in (9, 10) for name in ("t5", "table")],
        ),
        (["--cases", "long"], [("long", (1, 8, 4096, 64), "t5")]),
        (["--cases", "graph,grid", "--shapes", "1x2x10x4"], [(c, (1, 2, 10, 4), "table") for c in ("graph", "grid")]),
    ],
)
def test_what_is_measured(argv, expected, bench, monkeypatch):
    measured = []

    def record(case, shape, encoding, implementations, **options):
        measured.append((case, shape, encoding))
        assert list(implementations) == ["folded", "blockwise"]
        assert options["rounds"] == 7
        yield Row("attention", case, *shape, "float32", "cpu", encoding, "plain", "forward", 7, note="not measured")

    monkeypatch.setattr("relbias.bench.benchmark", record)
    rows, out = bench(*argv)
    assert measured == expected
    assert len(rows) == len(expected)
    assert out.count("| plain | forward | - | - | - | - | not measured |") == len(expected)


def test_the_table_goes_between_its_markers(bench, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- relbias bench: begin short -->\nold\n<!-- relbias bench: end short -->\nafter\n")
    argv = ["--shapes", "1x2x16x8", "--rounds", "1", "--encodings", "alibi", "--no-peers"]
    bench(*argv, "--write", f"{page}#short")
    text = page.read_text()
    assert text.startswith("before\n<!-- relbias bench: begin short -->\nsequence, attention")
    assert text.endswith("<!-- relbias bench: end short -->\nafter\n")
    assert "\nold\n" not in text
    assert f"    relbias bench {' '.join(argv)} --write" in text
    assert "Machine: " in text


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["--encodings", "t55"],
            "the case 'sequence' cannot measure 't55': there is no encoding 't55'; did you mean 't5'?",
        ),
        (["--cases", "grids"], "--cases has no 'grids'; did you mean 'grid'?"),
        (["--implementations", "fold"], "--implementations has no 'fold'; did you mean 'folded'?"),
        (["--dtypes", "int8"], "--dtypes has no 'int8'; known: bfloat16, float16, float32, float64"),
        (["--levels", "layers"], "--levels has no 'layers'; did you mean 'layer'?"),
        (["--device", "gpu"], "--device has no 'gpu'; did you mean 'cpu'?"),
        (["--lengths", "12k"], "--lengths has '12k', expected numbers of tokens such as 256,1024"),
        (["--shapes", "2x8x64"], "--shapes has '2x8x64', expected BxHxNxD such as 2x8x1024x64"),
        (["--shapes", "2x8x0x64"], "--shapes has '2x8x0x64', expected BxHxNxD such as 2x8x1024x64"),
        (
            ["--shapes", "1x1x8x8", "--lengths", "8"],
            "--lengths and --shapes both say how many tokens there are; give one of them",
        ),
        (["--rounds", "0"], "--rounds is 0, expected at least 1"),
        (["--rounds", "x"], "argument --rounds: invalid int value: 'x'; see relbias bench --help"),
        (
            ["--cases", "grid", "--lengths", "16"],
            "the case 'grid' is a square grid and a class token, N = S^2 + 1 such as 197; got N = 16",
        ),
    ],
)
def test_refusals_come_before_the_first_measurement(argv, line, relbias_fails, tmp_path):
    assert relbias_fails("bench", *argv, "-o", tmp_path / "out") == line
    assert not (tmp_path / "out").exists()


def test_no_gpu(relbias_fails, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert relbias_fails("bench", "--device", "cuda").startswith("--device is cuda, and torch sees no GPU here")


def test_a_place_that_cannot_be_written(relbias_fails, tmp_path):
    (tmp_path / "file").write_text("mine")
    line = relbias_fails("bench", "-o", tmp_path / "file" / "out")
    assert line.startswith(f"cannot write {tmp_path / 'file' / 'out'}")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_extra(monkeypatch, relbias_fails):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert relbias_fails("bench") == "matplotlib is not installed; run: pip install 'relbias[plot]'"


def test_the_commands_of_the_page_on_performance_fill_its_tables():
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    relbias bench (.*--write docs/performance\.md#(\S+))$", page, flags=re.MULTILINE)
    markers = re.findall(r"<!-- relbias bench: begin (\S+) -->", page)
    assert list(dict.fromkeys(name for _, name in commands)) == markers
    for words, _ in commands:
        options = bench_command._parser().parse_args(shlex.split(words))
        assert bench_command._measurements(options)
    assert markers == re.findall(r"<!-- relbias bench: end (\S+) -->", page)
