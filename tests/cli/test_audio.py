"""The recipes that classify clips, from the training to the predictions."""

import csv
import json

import pytest
import torch
import yaml
from tests.data.files import write_clips

from relbias.cli import main as cli
from relbias.data import Tones
from relbias.models import SpectrogramTransformer
from relbias.tasks import AudioClassification

QUIET = [
    "-c", "trainer/smoke", "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
    "--trainer.limit_test_batches", "null", "--trainer.limit_train_batches", "2", "--trainer.log_every_n_steps", "1",
]  # fmt: skip
TONES = [
    "-c", "audio/tones", *QUIET, "--model.init_args.network.init_args", "{dim: 16, depth: 1, num_heads: 2}",
    "--data.init_args", "{num_train: 16, num_test: 16, batch_size: 8, test_lengths: [160]}",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs, to be read and not to be changed."""
    top = tmp_path_factory.mktemp("runs")
    for encoding in ("rope_axial", "table"):
        assert cli.main(["fit", *TONES, "-c", f"encoding/{encoding}", "--run_dir", str(top / encoding)]) == 0
        assert cli.main(["test", str(top / encoding)]) == 0
    return {path.name: path for path in top.iterdir()}


def result(run):
    found = json.loads((run / "test.json").read_text())
    del found["overrides"]
    return found


@torch.no_grad()
def accuracy(run, length):
    """Of the best weights of a run, at a length."""
    config = yaml.safe_load((run / "config.yaml").read_text())["model"]["init_args"]
    sizes, encoding = config["network"]["init_args"], config["encoding"]
    task = AudioClassification(lambda encoding: SpectrogramTransformer(encoding, **sizes), encoding, num_classes=8)
    state = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    task.load_state_dict(state)
    data = Tones(num_train=16, num_test=16, batch_size=16)
    data.setup()
    [(features, lengths, labels)] = data.test_dataloader_at(length)
    return (task.eval()(features, lengths).argmax(1) == labels).float().mean().item()


def test_tones_are_tested_at_the_lengths_that_the_network_takes(runs):
    expected = {
        "test/accuracy": accuracy(runs["rope_axial"], 128),
        "test/accuracy_160": accuracy(runs["rope_axial"], 160),
    }
    assert result(runs["rope_axial"]) == pytest.approx(expected)
    assert result(runs["table"]) == {"test/accuracy": pytest.approx(accuracy(runs["table"], 128))}
    config = yaml.safe_load((runs["table"] / "config.yaml").read_text())
    assert config["data"]["init_args"]["classes"][0] == "rising slowing"


def test_a_table_is_drawn_at_other_lengths_where_it_may_be_resized(runs, tmp_path, capsys):
    argv = ["plot", "extrapolation", *map(str, runs.values()), "--at", "96,128,200"]
    assert cli.main([*argv, "-o", str(tmp_path / "plain")]) == 0
    assert "tables are resized where --resize" in capsys.readouterr().err
    rows = list(csv.DictReader((tmp_path / "plain" / "extrapolation.csv").open(newline="")))
    found = {(row["encoding"], int(row["size"])) for row in rows}
    assert found == {("rope_axial", 96), ("rope_axial", 128), ("rope_axial", 200), ("table", 96), ("table", 128)}
    assert cli.main([*argv, "--resize", "patch", "-o", str(tmp_path / "resized")]) == 0
    rows = list(csv.DictReader((tmp_path / "resized" / "extrapolation.csv").open(newline="")))
    assert len(rows) == 6


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    root = write_clips(tmp_path_factory.mktemp("words"), {"yes": 6, "no": 6}, rate=16000, seconds=0.3)
    (root / "validation_list.txt").write_text("yes/001.wav\nno/003.wav\n")
    (root / "testing_list.txt").write_text("no/000.wav\nyes/000.wav\n")
    return root


NETWORKS = {
    "SpectrogramTransformer": [
        "--model.init_args.network.init_args", "{dim: 12, depth: 1, num_heads: 2, num_classes: 2}",
    ],
    "SpeechConformer": [
        "-c", "network/conformer", "--model.init_args.network.init_args",
        "{dim: 8, depth: 1, num_heads: 2, mlp_ratio: 1, kernel_size: 3, channels: 2, num_outputs: 2}",
    ],
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_speech_commands_with_both_networks(network, words, tmp_path, capsys):
    run = tmp_path / "run"
    data = ["--data.init_args.root", str(words), "--data.init_args.num_workers", "0"]
    argv = ["-c", "audio/speech_commands", *QUIET, *NETWORKS[network], "--model.init_args.num_classes", "2", *data]
    assert cli.main(["fit", *argv, "--run_dir", str(run)]) == 0
    assert cli.main(["test", str(run)]) == 0
    assert set(result(run)) == {"test/accuracy"}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["init_args"]["network"]["class_path"].endswith(f".{network}")
    assert config["data"]["init_args"]["classes"] == ["no", "yes"]
    capsys.readouterr()
    assert cli.main(["predict", str(run)]) == 0


def test_a_network_of_other_sizes_is_refused_before_anything_is_written(tmp_path, relbias_fails):
    recipe = ["fit", *TONES, "--run_dir", tmp_path / "run"]
    line = relbias_fails(*recipe, "--model.init_args.network.init_args", "{dim: 16, num_mels: 48}")
    assert "the data has 32 mel bands and the network's num_mels is 48" in line
    line = relbias_fails(*recipe, "--model.init_args.num_classes", "7")
    assert "Tones has 8 classes and num_classes is 7" in line
    assert not (tmp_path / "run").exists()
