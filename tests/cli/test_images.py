"""The recipes on files of images, from the training to the predictions."""

import csv
import json
import shutil

import pytest
import timm
import torch
import yaml
from tests.data.files import expect_cifar10, write_cifar10, write_images

from relbias import resources
from relbias.cli import main as cli

QUIET = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
SMALL = "--model.init_args.network.init_args.options"


@pytest.fixture
def cifar10(tmp_path_factory, monkeypatch):
    root = write_cifar10(tmp_path_factory.mktemp("cifar10"))
    expect_cifar10(root, monkeypatch)
    data = [
        "--data.init_args.root",
        str(root),
        "--data.init_args.num_workers",
        "0",
        "--data.init_args.batch_size",
        "16",
    ]
    model = [f"{SMALL}.depth", "1", f"{SMALL}.embed_dim", "24", f"{SMALL}.num_heads", "2"]
    return ["-c", "vision/cifar10_vit", "-c", "trainer/smoke", *data, *model, *QUIET]


@pytest.fixture
def flowers(tmp_path_factory):
    root = tmp_path_factory.mktemp("images") / "flowers"
    write_images(root, {"aster": 6, "lily": 6, "rose": 6})
    return root


@pytest.fixture
def finetune(flowers):
    data = [
        "--data.init_args.root",
        str(flowers),
        "--data.init_args.num_workers",
        "0",
        "--data.init_args.batch_size",
        "8",
    ]
    model = ["--model.init_args.network.init_args.name", "test_vit", f"{SMALL}", "{img_size: 32, depth: 2}"]
    classes = ["--model.init_args.num_classes", "3", "--model.init_args.network.init_args.num_classes", "3"]
    return ["-c", "vision/finetune_folder", "-c", "trainer/smoke", *data, *model, *classes, *QUIET]


UNTRAINED = ["--model.init_args.network.init_args.pretrained", "false"]


@pytest.mark.parametrize("name", ["irpe", "swin_v2", "rope_mixed", "none"])
def test_cifar10_with_every_overlay(name, cifar10, tmp_path):
    run = tmp_path / "run"
    assert cli.main(["fit", *cifar10, "-c", f"encoding/{name}", "--run_dir", str(run)]) == 0
    assert json.loads((run / "fit.json").read_text())["steps"] == 2


def test_cifar10_from_training_to_predictions(cifar10, tmp_path):
    run = tmp_path / "run"
    assert cli.main(["fit", *cifar10, "--data.init_args.test_sizes", "[48]", "--run_dir", str(run)]) == 0
    assert cli.main(["test", str(run)]) == 0
    result = json.loads((run / "test.json").read_text())
    assert set(result) == {"test/accuracy", "test/accuracy_48", "overrides"}
    assert cli.main(["predict", str(run)]) == 0
    rows = list(csv.DictReader((run / "predictions.csv").open(newline="")))
    assert [row["label"] for row in rows[:3]] == ["airplane", "automobile", "bird"]
    assert cli.main(["plot", "attention", str(run), "-o", str(tmp_path / "figures")]) == 0
    assert cli.main(["plot", "bias", str(run), "-o", str(tmp_path / "figures")]) == 0


def test_a_folder_from_training_to_predictions(finetune, flowers, tmp_path, capsys):
    run = tmp_path / "run"
    assert cli.main(["fit", *finetune, *UNTRAINED, "--run_dir", str(run)]) == 0
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["init_args"]["classes"] == ["aster", "lily", "rose"]
    assert cli.main(["test", str(run)]) == 0
    assert cli.main(["predict", str(run)]) == 0
    rows = list(csv.DictReader((run / "predictions.csv").open(newline="")))
    assert [row["label"] for row in rows] == ["aster", "lily", "rose"]
    assert {row["prediction"] for row in rows} <= {"aster", "lily", "rose"}
    again = tmp_path / "again"
    assert cli.main(["fit", "-c", str(run / "config.yaml"), "--run_dir", str(again)]) == 0
    assert (again / "metrics.csv").read_text() == (run / "metrics.csv").read_text()


def test_a_folder_whose_classes_have_changed_since(finetune, flowers, tmp_path, relbias_fails, capsys):
    run = tmp_path / "run"
    assert cli.main(["fit", *finetune, *UNTRAINED, "--run_dir", str(run)]) == 0
    shutil.copytree(flowers / "lily", flowers / "iris")
    capsys.readouterr()
    assert "differ from what is expected: it adds iris" in relbias_fails("test", run)
    assert not (run / "test.json").exists()


def test_trained_weights_are_fetched_for_a_training_alone(finetune, flowers, tmp_path, capsys, relbias_fails):
    trained = timm.create_model("test_vit", img_size=32, depth=2)
    file = tmp_path / "test_vit.pth"
    torch.save(trained.state_dict(), file)
    weights = [f"{SMALL}.pretrained_cfg_overlay", f"{{file: {file}}}"]
    run = tmp_path / "run"
    frozen = ["--model.init_args.network.init_args.freeze", "true", "-c", "encoding/rope_mixed"]
    assert cli.main(["fit", *finetune, *weights, *frozen, "--run_dir", str(run)]) == 0
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(state["network.model.blocks.1.attn.qkv.weight"], trained.blocks[1].attn.qkv.weight)
    assert state["network.model.blocks.1.attn.encoding.strength"].abs().max() > 0
    file.unlink()
    assert cli.main(["test", str(run)]) == 0
    assert cli.main(["fit", "-c", str(run / "config.yaml"), "--ckpt_path", "last", "--trainer.max_epochs", "2"]) == 0
    assert cli.main(["check", str(run / "config.yaml")]) == 0
    capsys.readouterr()
    line = relbias_fails("fit", "-c", run / "config.yaml", "--run_dir", tmp_path / "other")
    assert "the trained weights of test_vit cannot be loaded" in line
    assert not (tmp_path / "other").exists()


def test_a_training_that_was_stopped_in_its_first_epoch_fetches_the_weights_again(finetune, tmp_path):
    trained = timm.create_model("test_vit", img_size=32, depth=2)
    torch.save(trained.state_dict(), tmp_path / "test_vit.pth")
    weights = [f"{SMALL}.pretrained_cfg_overlay", f"{{file: {tmp_path / 'test_vit.pth'}}}"]
    run = tmp_path / "run"
    assert cli.main(["fit", *finetune, *weights, "--run_dir", str(run)]) == 0
    losses = (run / "metrics.csv").read_text()
    for name in ("fit.json", "metrics.csv"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")
    assert cli.main(["fit", "-c", str(run / "config.yaml"), "--ckpt_path", "last"]) == 0
    assert (run / "metrics.csv").read_text() == losses


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--data.init_args.root", "absent"], "there is no folder absent; give one that holds a folder of images"),
        (
            ["--model.init_args.num_classes", "4"],
            "has 3 classes and num_classes is 4; give --model.init_args.num_classes 3",
        ),
        (["--model.init_args.network.init_args.num_classes", "4"], "give both the same num_classes"),
        (["--model.init_args.network.init_args.name", "test_vitt"], "timm has no model 'test_vitt'"),
        ([f"{SMALL}.img_sise", "64"], "timm cannot build test_vit"),
        (["-c", "encoding/learned"], "'learned' is applied at the input"),
    ],
)
def test_what_does_not_fit_is_one_line_and_writes_nothing(
    argv, message, finetune, tmp_path, monkeypatch, relbias_fails
):
    monkeypatch.chdir(tmp_path)
    assert message in relbias_fails("fit", *finetune, *UNTRAINED, *argv)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("num_workers", ["0", "1"])
def test_an_image_that_cannot_be_read_is_named(num_workers, finetune, flowers, tmp_path, relbias_fails):
    for file in (flowers / "rose").iterdir():
        file.write_text("no image")
    argv = [*finetune, *UNTRAINED, "--data.init_args.num_workers", num_workers, "--run_dir", tmp_path / "run"]
    line = relbias_fails("fit", *argv)
    assert "cannot be read as an image" in line
    assert str(flowers / "rose") in line
    assert "Traceback" not in line
    assert not (tmp_path / "run").exists()


def test_check_lays_configs_on_recipes_and_fetches_nothing(capsys, relbias_fails):
    argv = ["check", "vision/cifar10_vit", "vision/finetune_folder", "-c", "encoding/rope_mixed", "-c", "trainer/gpu"]
    assert cli.main(argv) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok  vision/cifar10_vit with encoding/rope_mixed with trainer/gpu",
        "ok  vision/finetune_folder with encoding/rope_mixed with trainer/gpu",
    ]
    assert "'t5' takes the relation Sequence" in relbias_fails("check", "vision/cifar10_vit", "-c", "encoding/t5")
    assert "no recipe, config or file 'encoding/t9'" in relbias_fails("check", "vision/digits", "-c", "encoding/t9")


def test_digits_are_tested_at_the_sizes_of_the_recipe(tmp_path):
    run, tiny = tmp_path / "run", ["--model.init_args.network.init_args", "{depth: 1, dim: 8, num_heads: 2}"]
    argv = ["-c", "vision/digits_resolution", "-c", "trainer/smoke", "-c", "encoding/learned", *tiny, *QUIET]
    assert cli.main(["fit", *argv, "--run_dir", str(run)]) == 0
    assert cli.main(["test", str(run)]) == 0
    result = json.loads((run / "test.json").read_text())
    recipe = yaml.safe_load(resources.read(resources.find("vision/digits_resolution")))
    sizes = recipe["data"]["init_args"]["test_sizes"]
    assert set(result) == {"test/accuracy", *(f"test/accuracy_{size}" for size in sizes), "overrides"}
