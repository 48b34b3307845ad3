"""Spoken digits from the recipes: training, test and other lengths, with recordings of tones."""

import csv
import json

import numpy as np
import pytest
import soundfile
import yaml

from relbias.cli import main as cli

QUIET = ["-c", "trainer/smoke", "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
SMALL = ["--model.init_args.network.init_args.dim", "8", "--model.init_args.network.init_args.depth", "1"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A tone for each of ten digits, of two speakers and eight takes."""
    folder = tmp_path_factory.mktemp("recordings")
    for digit in range(10):
        for speaker, name in enumerate(("ann", "bob")):
            for take in range(8):
                tone = 0.3 * np.sin(np.arange(800 + 40 * take) * (0.2 + 0.2 * digit + 0.02 * speaker))
                soundfile.write(folder / f"{digit}_{name}_{take}.wav", tone, 8000)
    return str(folder)


def fit_and_test(run_dir, recipe, folder, *argv):
    argv = ["-c", recipe, *QUIET, *SMALL, "--data.init_args.path", folder, *argv, "--run_dir", str(run_dir)]
    assert cli.main(["fit", *argv]) == 0
    assert cli.main(["test", str(run_dir)]) == 0
    return json.loads((run_dir / "test.json").read_text())


def test_strings_are_learned_short_and_tested_long(recordings, tmp_path):
    data = {"num_test": 32, "test_lengths": [2, 8], "batch_size": 4, "path": recordings}
    argv = ["--data.init_args", yaml.safe_dump(data, default_flow_style=True)]
    found = fit_and_test(tmp_path / "run", "audio/digit_strings", recordings, *argv)
    rates = {name: value for name, value in found.items() if "error_rate" in name}
    assert sorted(rates) == ["test/error_rate", "test/error_rate_2", "test/error_rate_8"]
    argv = ["plot", "extrapolation", str(tmp_path / "run"), "--at", "2,8", "-o", str(tmp_path)]
    assert cli.main([*argv, "-c", "network/window_sides"]) == 0
    rows = list(csv.DictReader((tmp_path / "extrapolation.csv").open(newline="")))
    drawn = {(row["encoding"], row["size"]): float(row["value"]) for row in rows if row["metric"] == "error_rate"}
    assert len(drawn) == 4
    for number in ("2", "8"):
        assert drawn["rope, window=None", number] == pytest.approx(rates[f"test/error_rate_{number}"], abs=1e-6)
    assert cli.main(["predict", str(tmp_path / "run"), "--trainer.limit_predict_batches", "2"]) == 0
    rows = list(csv.DictReader((tmp_path / "run" / "predictions.csv").open(newline="")))
    assert {len(row["labels"].split()) for row in rows} == {4}
    edits = sum(int(row["edits"]) for row in rows)
    assert edits / (4 * len(rows)) == pytest.approx(rates["test/error_rate"])


def test_single_digits_of_a_speaker_who_was_not_heard(recordings, tmp_path):
    argv = ["--data.init_args.held_out_speaker", "bob", "-c", "encoding/learned"]
    found = fit_and_test(tmp_path / "run", "audio/spoken_digits", recordings, *argv)
    assert 0 <= found["test/accuracy"] <= 1
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["data"]["init_args"]["classes"] == [str(digit) for digit in range(10)]
