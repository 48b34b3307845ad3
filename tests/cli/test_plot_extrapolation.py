import copy
import csv
import shutil
from functools import partial

import pytest
import torch
import yaml
from matplotlib.figure import Figure
from tests.cli.sizes import Timm
from torch.utils.data import DataLoader, TensorDataset

from relbias.cli import main as cli
from relbias.cli.build import build
from relbias.cli.plot_extrapolation import fitting
from relbias.data import Digits
from relbias.encodings.resize import resize_table
from relbias.models.vision import VisionTransformer
from relbias.plugins.timm import resize
from relbias.relations import Grid
from relbias.tasks import ImageClassification

SIZES = {"patch_size": 4, "in_channels": 1, "num_classes": 10, "dim": 8, "depth": 1, "num_heads": 2}


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """Runs of a table, trained for an epoch, with other weights under another seed, and of shaw, trained as well."""
    top = tmp_path_factory.mktemp("sizes")
    for encoding in ("table", "shaw"):
        words = ["--trainer.limit_train_batches", "10", "--model.init_args.encoding", encoding]
        assert cli.main(["fit", *tiny, *words, "--run_dir", str(top / encoding)]) == 0
    other = copied(top / "table", top / "table-1", seed_everything=1)
    file = other / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(file, weights_only=True)
    generator = torch.Generator().manual_seed(1)
    for name, value in checkpoint["state_dict"].items():
        value += (3.0 if name.endswith("table") else 0.3) * torch.randn(value.shape, generator=generator)
    torch.save(checkpoint, file)
    return {path.name: path for path in top.iterdir()}


def copied(run_dir, to, **changed):
    """A copy of a run with other values in its configuration, given by keys with __ for dots."""
    shutil.copytree(run_dir, to)
    config = yaml.safe_load((to / "config.yaml").read_text())
    for key, value in changed.items():
        *path, last = key.split("__")
        mapping = config
        for part in path:
            mapping = mapping[part]
        mapping[last] = value
    (to / "config.yaml").write_text(yaml.safe_dump(config))
    return to


def untrained(run_dir, to, **changed):
    """A copy with another model, whose checkpoint holds its start."""
    copied(run_dir, to, **changed)
    config = yaml.safe_load((to / "config.yaml").read_text())
    model = build([("", config)], with_trainer=False).model
    torch.save({"state_dict": model.state_dict()}, to / "checkpoints" / "best.ckpt")
    return model


def plot(*words, output):
    """Runs the command and returns the values of the CSV by run, size and metric."""
    assert cli.main(["plot", "extrapolation", *map(str, words), "-o", str(output)]) == 0
    assert (output / "extrapolation.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((output / "extrapolation.csv").open(newline="")))
    assert len({(row["run"], row["size"], row["metric"]) for row in rows}) == len(rows)
    return rows


def values(rows, run_dir):
    assert {row["metric"] for row in rows} == {"accuracy"}
    return {int(row["size"]): float(row["value"]) for row in rows if row["run"] == str(run_dir)}


def images_at(size):
    data = Digits()
    data.setup()
    return tuple(torch.cat(parts) for parts in zip(*data.test_dataloader_at(size), strict=True))


@torch.no_grad()
def accuracy(network, size):
    images, labels = images_at(size)
    return float((network.eval()(images).argmax(dim=1) == labels).float().mean())


def network_of(run_dir, encoding, grid=None):
    """The network with the weights of a run, its tables for another grid."""
    state = torch.load(run_dir / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    state = {name.removeprefix("network."): value for name, value in state.items() if name.startswith("network.")}
    side = 4
    if grid is not None:
        side, (size, unit) = grid[0], grid
        key = "blocks.0.attention.encoding.table"
        state[key] = resize_table(state[key], Grid(4, 4), Grid(size, size), unit)
    network = VisionTransformer(encoding, image_size=4 * side, **SIZES)
    network.load_state_dict(state)
    return network


def test_numbers_are_those_of_the_checkpoint(runs, tmp_path, capsys):
    order = [runs["shaw"], runs["table"], runs["table-1"]]
    rows = plot(*order, "--at", "8,16,24", output=tmp_path)
    out, err = capsys.readouterr()
    assert out.split() == [str(tmp_path / "extrapolation.png"), str(tmp_path / "extrapolation.csv")]
    of_shaw = {row["encoding"] for row in rows if row["run"] == str(runs["shaw"])}
    assert [(row["run"], row["encoding"], row["seed"]) for row in rows[::2]][-2:] == [
        (str(runs["table"]), "table", "0"),
        (str(runs["table-1"]), "table", "1"),
    ]
    assert len(of_shaw) == 1
    assert of_shaw.pop().startswith("shaw")
    expected = {8: None, 16: None, 24: None}
    for size in expected:
        expected[size] = accuracy(network_of(runs["shaw"], "shaw"), size)
    assert len(set(expected.values())) == 3
    assert values(rows, runs["shaw"]) == pytest.approx(expected, abs=1e-6)
    for name in ("table", "table-1"):
        expected = {size: accuracy(network_of(runs[name], "table"), size) for size in (8, 16)}
        assert len(set(expected.values())) == 2
        assert values(rows, runs[name]) == pytest.approx(expected, abs=1e-6)
    lines = [line for line in err.splitlines() if not line.startswith("Seed set")]
    assert len(lines) == 9
    assert lines[0] == f"{runs['shaw']} at 8: accuracy {values(rows, runs['shaw'])[8]:.4f}"
    assert lines[5].startswith(f"{runs['table']} at 24: left out: a 6x6 grid has offsets that Grid(4, 4)")
    assert lines[5].endswith("; tables are resized where --resize patch or --resize image asks for it")


@pytest.mark.parametrize("unit", ["patch", "image"])
def test_tables_are_resized_on_a_copy_where_they_are_too_small(unit, runs, tmp_path):
    before = (runs["table-1"] / "checkpoints" / "best.ckpt").read_bytes()
    rows = plot(runs["table-1"], "--at", "8,16,24,40", "--resize", unit, output=tmp_path)
    expected = {size: accuracy(network_of(runs["table-1"], "table"), size) for size in (8, 16)}
    for size in (24, 40):
        expected[size] = accuracy(network_of(runs["table-1"], "table", (size // 4, unit)), size)
    assert values(rows, runs["table-1"]) == pytest.approx(expected, abs=1e-6)
    assert (runs["table-1"] / "checkpoints" / "best.ckpt").read_bytes() == before


def test_the_task_itself_stays_as_it_is():
    task = ImageClassification(partial(VisionTransformer, image_size=16, **SIZES, dropout=0.5), "table")
    before = copy.deepcopy(task.state_dict())
    batch = (torch.zeros(2, 1, 24, 24), torch.tensor([0, 1]))
    prepared = fitting(task, batch, 24, "image")
    assert prepared(batch[0]).isfinite().all()
    assert task.training
    assert not any(module.training for module in prepared.modules())
    after = task.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before.keys() | after.keys())
    with pytest.raises(ValueError, match="a 6x6 grid has offsets"):
        task(batch[0])


def test_the_test_itself_is_the_value_at_the_training_size(runs, tmp_path, capsys):
    shutil.copytree(runs["table-1"], tmp_path / "run")
    assert cli.main(["test", str(tmp_path / "run")]) == 0
    tested = yaml.safe_load((tmp_path / "run" / "test.json").read_text())["test/accuracy"]
    assert cli.main(["plot", "extrapolation", str(tmp_path / "run"), "--at", "16"]) == 0
    (row,) = csv.DictReader((tmp_path / "run" / "plots" / "extrapolation.csv").open(newline=""))
    assert float(row["value"]) == tested


def test_the_training_size_is_marked_and_named(runs, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: figures.append(figure))
    assert cli.main(["plot", "extrapolation", str(runs["shaw"]), "--at", "8,24", "-o", str(tmp_path)]) == 0
    (axis,) = figures[0].axes
    assert list(axis.lines[-1].get_xdata()) == [16, 16]
    assert axis.get_xlabel() == "image side, pixels"
    assert figures[0].legends[0].get_texts()[-1].get_text() == "training: 16"


def test_runs_that_differ_in_more_than_the_seed_are_lines_of_their_own(runs, tmp_path):
    other = copied(runs["table"], tmp_path / "slow", model__init_args__lr=0.1, data__init_args__batch_size=8)
    rows = plot(runs["table"], runs["table-1"], other, "--at", "16", output=tmp_path)
    assert [row["encoding"] for row in rows] == ["table, lr=0.002", "table, lr=0.002", "table, lr=0.1"]


@pytest.mark.parametrize(
    ("encoding", "dynamic", "options", "served"),
    [
        ("table", True, ["--resize", "image"], [8, 16, 24]),
        ("table", False, ["--resize", "patch"], [8, 16, 24]),
        ("table", False, [], [16]),
        ("rope_axial", False, [], [8, 16, 24]),
    ],
)
def test_a_network_that_has_to_be_prepared(encoding, dynamic, options, served, runs, tmp_path, capsys):
    network = {"class_path": "tests.cli.sizes.Timm", "init_args": {"dynamic_img_size": dynamic}}
    changed = {"model__init_args__network": network, "model__init_args__encoding": encoding}
    model = untrained(runs["table"], tmp_path / "run", **changed).network.model
    other = Timm(encoding, dynamic_img_size=True).model
    other.load_state_dict(model.state_dict())
    expected = {}
    for size in served:
        if encoding == "table" and (size == 24 or (not dynamic and size != 16)):
            resized = copy.deepcopy(other)
            resize(resized, (size // 4, size // 4), options[-1])
            expected[size] = accuracy(resized, size)
        else:
            expected[size] = accuracy(other, size)
    assert len(set(expected.values())) >= min(len(served), 2)
    rows = plot(tmp_path / "run", "--at", "8,16,24", *options, output=tmp_path)
    assert values(rows, tmp_path / "run") == pytest.approx(expected, abs=1e-6)
    left_out = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(left_out) == 3 - len(served)
    for line in left_out:
        assert "doesn't match model (16).; tables are resized where --resize patch or --resize image asks" in line


@pytest.mark.parametrize("at", ["16,16", "24,16", "16,x", "0,16", "-8,16", "16.5", "16,,24", ""])
def test_sizes_that_are_none(at, runs, relbias_fails):
    expected = f"--at is {at!r}, expected positive integers that increase, such as 16,24,32"
    assert relbias_fails("plot", "extrapolation", runs["table"], f"--at={at}") == expected


def test_sizes_that_do_not_fit(runs, tmp_path, relbias_fails):
    extrapolation = ["plot", "extrapolation", runs["table"], "-o", tmp_path / "new"]
    assert "takes the sizes to test at, such as --at 16,24" in relbias_fails(*extrapolation)
    line = "an image side of 18 pixels is no multiple of the network's patch size 4"
    assert relbias_fails(*extrapolation, "--at", "16,18") == line
    assert "invalid choice: 'pixel'" in relbias_fails(*extrapolation, "--at", "16", "--resize", "pixel")
    for option in (["--at", "16"], ["--resize", "image"], ["-c", "encoding/rope_yarn"]):
        line = relbias_fails("plot", "bias", runs["table"], *option)
        assert line == "--at, --resize and -c apply to relbias plot extrapolation only"
    assert not (tmp_path / "new").exists()


def test_runs_that_cannot_be_compared(runs, tmp_path, relbias_fails):
    other = copied(runs["table"], tmp_path / "other", data__init_args__test_shift=0)
    same = "one picture compares runs of one task on the same data"
    line = relbias_fails("plot", "extrapolation", runs["table"], other, "--at", "16")
    assert line == f"{runs['table']} and {other} differ in data.init_args.test_shift: 2 and 0; {same}"
    task = copied(runs["table"], tmp_path / "task", model__class_path="tests.cli.test_plot_extrapolation.OtherTask")
    line = relbias_fails("plot", "extrapolation", runs["table"], task, "--at", "16")
    assert f"and {task} differ in model.class_path: relbias.tasks." in line
    line = relbias_fails("plot", "extrapolation", runs["shaw"], runs["table"], runs["shaw"], "--at", "16")
    assert line == f"{runs['shaw']} is given twice; give each run once"


def test_every_run_has_its_own_data(runs, tmp_path, monkeypatch, relbias_fails, capsys):
    """As where data prepare images as the network of the run takes them."""
    other = copied(runs["shaw"], tmp_path / "other", data__init_args__batch_size=9)
    give = Digits.test_dataloader_at
    monkeypatch.setattr(Digits, "test_dataloader_at", lambda self, size: moved(give(self, size), self.batch_size == 9))
    rows = plot(runs["shaw"], other, "--at", "16", output=tmp_path)
    images, labels = images_at(16)
    found = [values(rows, run_dir)[16] for run_dir in (runs["shaw"], other)]
    with torch.no_grad():
        predicted = network_of(runs["shaw"], "shaw").eval()(images).argmax(dim=1)
    assert found == pytest.approx([float((predicted == (labels + add) % 10).float().mean()) for add in (0, 1)])
    assert found[0] != found[1]
    capsys.readouterr()
    monkeypatch.setattr(Digits, "val_dataloader", lambda self: give(self, 24 if self.batch_size == 9 else 16))
    line = relbias_fails("plot", "extrapolation", runs["shaw"], other, "--at", "16")
    assert line.startswith(f"{runs['shaw']} was trained at 16 and {other} at 24; one picture")


def moved(loader, is_moved):
    """The batches of a loader, where asked for with other labels."""
    images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
    return DataLoader(TensorDataset(images, (labels + 1) % 10 if is_moved else labels), batch_size=200)


def test_runs_that_are_not_whole(runs, tmp_path, relbias_fails):
    (tmp_path / "config.yaml").write_text((runs["table"] / "config.yaml").read_text())
    assert "there is no checkpoint" in relbias_fails("plot", "extrapolation", runs["table"], tmp_path, "--at", "16")
    (tmp_path / "config.yaml").unlink()
    assert "is not a run folder" in relbias_fails("plot", "extrapolation", tmp_path, "--at", "16")


class OtherTask(ImageClassification):
    extrapolation = None


def test_tasks_and_data_that_know_no_other_sizes(runs, tmp_path, relbias_fails, monkeypatch):
    other = copied(runs["table"], tmp_path / "run", model__class_path="tests.cli.test_plot_extrapolation.OtherTask")
    line = "OtherTask is not drawn at other sizes: it has no extrapolation"
    assert relbias_fails("plot", "extrapolation", other, "--at", "16") == line
    with monkeypatch.context() as patch:
        patch.delattr(ImageClassification, "test_step")
        assert "No `test_step()` method defined" in relbias_fails("plot", "extrapolation", runs["table"], "--at", "16")
    monkeypatch.delattr(Digits, "test_dataloader_at")
    line = "Digits has no test_dataloader_at(size), which gives its test at another size"
    assert relbias_fails("plot", "extrapolation", runs["table"], "--at", "16") == line


def test_sizes_that_the_data_refuse(runs, relbias_fails, monkeypatch):
    give = Digits.test_dataloader_at

    def refuse(self, size):
        if size > 16:
            raise ValueError(f"there are no images of {size} pixels")
        return give(self, size)

    monkeypatch.setattr(Digits, "test_dataloader_at", refuse)  # before the first size is evaluated and told
    assert relbias_fails("plot", "extrapolation", runs["shaw"], "--at", "16,24") == "there are no images of 24 pixels"


def test_data_that_does_not_keep_its_word(runs, relbias_fails, monkeypatch):
    give = Digits.test_dataloader_at
    monkeypatch.setattr(Digits, "test_dataloader_at", lambda self, size: give(self, 16))
    line = "Digits.test_dataloader_at(24) gives batches of size 16"
    assert relbias_fails("plot", "extrapolation", runs["shaw"], "--at", "24") == line
    monkeypatch.setattr(Digits, "test_dataloader_at", lambda self, size: [])
    assert "the data has no batch" in relbias_fails("plot", "extrapolation", runs["shaw"], "--at", "24")


def test_nothing_that_can_be_served_leaves_the_earlier_picture(runs, tmp_path, capsys):
    (tmp_path / "extrapolation.csv").write_text("earlier")
    words = ["plot", "extrapolation", str(runs["table"]), "--at", "24,32", "-o", str(tmp_path)]
    assert cli.main(words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "relbias: error: there is nothing to draw: no model has a value at any size"
    )
    assert [file.read_text() for file in tmp_path.iterdir()] == ["earlier"]


def test_a_folder_that_cannot_be_written(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "x"
    assert cli.main(["plot", "extrapolation", str(runs["shaw"]), "--at", "16", "-o", str(output)]) == 2
    assert "give another folder with -o" in capsys.readouterr().err
