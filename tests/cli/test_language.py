"""Language models from the recipes: training, test, other lengths."""

import csv
import json

import pytest
import torch
import yaml

from relbias.cli import main as cli
from relbias.data import TextFiles
from relbias.encodings import NTKRoPE, RoPE
from relbias.models import LanguageModel
from relbias.tasks import LanguageModeling

TEXT = "".join(f"{number} plus {number + 1} is {2 * number + 1}. " for number in range(200))
NETWORK = {"num_tokens": 32, "max_length": 16, "dim": 8, "depth": 1, "num_heads": 2}
QUIET = [
    "-c", "trainer/smoke", "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
    "--trainer.limit_test_batches", "null", "--trainer.limit_train_batches", "4", "--trainer.log_every_n_steps", "1",
]  # fmt: skip


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The recipe made tiny, with a text of its own in windows of 16."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    data = {"path": str(path), "length": 16, "test_lengths": [32, 64]}
    return [
        "-c", "language/chars", "-c", "data/text_files", *QUIET,
        "--model.init_args.network.init_args", yaml.safe_dump(NETWORK, default_flow_style=True),
        "--data.init_args", yaml.safe_dump(data, default_flow_style=True),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def runs(words, tmp_path_factory):
    """Finished runs, to be read and not to be changed."""
    top = tmp_path_factory.mktemp("runs")
    for encoding in ("alibi", "rope"):
        assert cli.main(["fit", *words, "-c", f"encoding/{encoding}", "--run_dir", str(top / encoding)]) == 0
        assert cli.main(["test", str(top / encoding)]) == 0
    return {path.name: path for path in top.iterdir()}


def state(run, name="best"):
    checkpoint = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
    return {key.removeprefix("network."): value for key, value in checkpoint["state_dict"].items()}


def extrapolation(output, *argv):
    assert cli.main(["plot", "extrapolation", *map(str, argv), "-o", str(output)]) == 0
    return list(csv.DictReader((output / "extrapolation.csv").open(newline="")))


@torch.no_grad()
def losses(run, length, encoding, **options):
    """The losses over all tokens and over the last quarter, from the weights of a run."""
    network = LanguageModel(encoding, **NETWORK, **options).eval()
    network.load_state_dict({key: value for key, value in state(run).items() if not key.startswith("val_loss")})
    config = yaml.safe_load((run / "config.yaml").read_text())["data"]["init_args"]
    data = TextFiles(**config)
    data.setup()
    tokens, targets = (torch.cat(parts) for parts in zip(*data.test_dataloader_at(length), strict=True))
    chosen = -network(tokens).log_softmax(-1).gather(2, targets[..., None])[..., 0]
    return chosen.mean().item(), chosen[:, -length // 4 :].mean().item()


def test_a_run_tells_its_text_and_its_losses(runs):
    config = yaml.safe_load((runs["alibi"] / "config.yaml").read_text())
    assert config["data"]["init_args"]["fingerprint"].startswith(f"{len(TEXT)} tokens, sha256 ")
    found = json.loads((runs["alibi"] / "test.json").read_text())
    wanted = {}
    for suffix, length in (("", 16), ("_32", 32), ("_64", 64)):
        wanted[f"test/loss{suffix}"], wanted[f"test/loss_last_quarter{suffix}"] = losses(runs["alibi"], length, "alibi")
    assert len(set(wanted.values())) == 6
    perplexity = found.pop("test/perplexity")
    del found["overrides"]
    assert found == pytest.approx(wanted, abs=1e-5)
    assert perplexity == pytest.approx(torch.tensor(found["test/loss"]).exp().item(), abs=1e-3)


def test_losses_at_other_lengths(runs, tmp_path):
    rows = extrapolation(tmp_path, *runs.values(), "--at", "16,64,128")
    assert {row["metric"] for row in rows} == {"loss", "loss_last_quarter"}
    for name, run in runs.items():
        own = {(int(row["size"]), row["metric"]): float(row["value"]) for row in rows if row["run"] == str(run)}
        for length in (16, 64, 128):
            loss, late = losses(run, length, name)
            assert own[length, "loss"] == pytest.approx(loss, abs=1e-5)
            assert own[length, "loss_last_quarter"] == pytest.approx(late, abs=1e-5)
        tested = json.loads((run / "test.json").read_text())
        assert own[64, "loss"] == tested["test/loss_64"]


def test_weights_of_rope_with_other_rotations_and_a_window(runs, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "model: {init_args: {encoding: {class_path: relbias.encodings.NTKRoPE, init_args: {factor: 4}},"
        " network: {init_args: {window: 12}}}}"
    )
    window = tmp_path / "window.yaml"
    window.write_text("model: {init_args: {network: {init_args: {window: 16}}}}")
    rows = extrapolation(tmp_path, runs["alibi"], runs["rope"], "--at", "32", "-c", own, "-c", window)
    found = {row["encoding"]: float(row["value"]) for row in rows if row["metric"] == "loss"}

    def ntk(heads, size, relation):
        return NTKRoPE(heads, size, relation, factor=4)

    wanted = {
        "alibi, window=None": losses(runs["alibi"], 32, "alibi")[0],
        "rope, window=None": losses(runs["rope"], 32, "rope")[0],
        "rope_ntk (factor=4.0, base=10000.0)": losses(runs["rope"], 32, ntk, window=12)[0],
        "alibi, window=16": losses(runs["alibi"], 32, "alibi", window=16)[0],
        "rope, window=16": losses(runs["rope"], 32, "rope", window=16)[0],
    }
    assert found == pytest.approx(wanted, abs=1e-5)
    assert len({round(value, 6) for value in wanted.values()}) == 5


def test_options_of_the_run_stay_where_the_config_gives_no_others(words, runs, tmp_path):
    rope = "{class_path: relbias.encodings.RoPE, init_args: {base: 50.0}}"
    run = tmp_path / "run"
    assert cli.main(["fit", *words, "--model.init_args.encoding", rope, "--run_dir", str(run)]) == 0
    (row, *_) = extrapolation(tmp_path, run, "--at", "32", "-c", "encoding/rope_ntk")[2:]
    assert row["encoding"] == "rope_ntk (factor=16.0, base=50.0)"
    wanted, _ = losses(run, 32, lambda *sizes: NTKRoPE(*sizes, factor=16, base=50.0))
    assert float(row["value"]) == pytest.approx(wanted, abs=1e-5)
    assert abs(wanted - losses(run, 32, lambda *sizes: RoPE(*sizes, base=50.0))[0]) > 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "{model: {init_args: {encoding: rope_yarn}}}",
            "no run has weights that it takes unchanged; an encoding takes",
        ),
        ("{model: {init_args: {encoding: alibi}}}", "no run has weights that it takes unchanged"),
        ("{data: {init_args: {length: 8}}}", "must set options of the network or its encoding, under model.init_args"),
        (
            "{model: {init_args: {network: {init_args: {depth: 2}}}}}",
            "does not fit the configuration beside it: missing",
        ),
        (
            "{model: {init_args: {network: {init_args: {windows: 2}}}}}",
            "unknown key 'model.init_args.network.init_args.w",
        ),
    ],
)
def test_changes_that_need_other_weights(change, message, runs, tmp_path, relbias_fails):
    (tmp_path / "change.yaml").write_text(change)
    argv = ["plot", "extrapolation", runs["alibi"], "--at", "16", "-c", tmp_path / "change.yaml"]
    assert message in relbias_fails(*argv)


def test_a_stopped_training_goes_on_with_the_same_windows(words, tmp_path, monkeypatch):
    fit = ["fit", *words, "--trainer.max_epochs", "3"]
    assert cli.main([*fit, "--run_dir", str(tmp_path / "whole")]) == 0
    step, calls = LanguageModeling.training_step, []

    def stops(self, batch, batch_idx):
        calls.append(batch)
        if len(calls) == 7:
            raise ValueError("stopped")
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModeling, "training_step", stops)
        assert cli.main([*fit, "--run_dir", str(tmp_path / "run")]) == 2
    assert cli.main(["fit", "-c", str(tmp_path / "run" / "config.yaml"), "--ckpt_path", "last"]) == 0
    whole, run = state(tmp_path / "whole", "last"), state(tmp_path / "run", "last")
    assert all(torch.equal(run[key], value) for key, value in whole.items())


def test_bfloat16_and_accumulation(words, tmp_path, monkeypatch):
    dtypes = set()
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear, "forward", lambda self, x: dtypes.add(forward(self, x).dtype) or forward(self, x)
    )
    run = tmp_path / "run"
    argv = ["fit", *words, "-c", "trainer/bf16", "--trainer.accumulate_grad_batches", "2", "--run_dir", str(run)]
    assert cli.main(argv) == 0
    assert torch.bfloat16 in dtypes
    record = json.loads((run / "fit.json").read_text())
    assert record["steps"] * 2 == record["epochs"] * 4
    assert all(value.dtype == torch.float32 for value in state(run).values())
    assert cli.main(["test", str(run)]) == 0
    assert 0 < json.loads((run / "test.json").read_text())["test/loss_64"] < 10


def test_a_learned_table_has_no_numbers_at_longer_windows(words, tmp_path, monkeypatch, capsys):
    recipe = tmp_path / "own.yaml"
    monkeypatch.chdir(tmp_path)
    assert cli.main(["show", "language/chars"]) == 0
    recipe.write_text(capsys.readouterr().out)
    assert cli.main(["table", "own.yaml", "--seeds", "1", "-c", "encoding/learned", *words[2:]]) == 0
    lines = [line.split(" | ") for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| ")]
    head, alibi, learned = lines
    assert head[4:8] == ["loss 32", "loss last quarter 32", "loss 64", "loss last quarter 64"]
    assert learned[4:8] == ["-"] * 4
    assert all(float(cell) > 0 for cell in (*alibi[1:8], *learned[1:4]))


def test_buckets_that_are_not_reached_are_told_at_the_start(words, tmp_path, capsys):
    argv = ["fit", *words, "-c", "encoding/t5", "--run_dir", str(tmp_path / "run")]
    assert cli.main(argv) == 0
    line = (
        "t5: 10 of 16 buckets for earlier tokens are reached at length 16; longer windows use the others as they were"
    )
    assert capsys.readouterr().err.count(line) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.init_args.length", "17", "-c", "encoding/learned"], "'learned' has 16 positions, got 17 tokens"),
        (["--data.init_args.length", "300"], "the val part of "),
        (["--data.init_args.test_lengths", "[64, 32]"], "test_lengths is [64, 32], expected lengths that increase"),
        (["--model.init_args.network.init_args.num_tokens", "9"], "and the network's num_tokens is 9; give --model."),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run(options, message, words, tmp_path, relbias_fails):
    assert message in relbias_fails("fit", *words, *options, "--run_dir", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_empty_text_is_refused(words, tmp_path, relbias_fails):
    (tmp_path / "empty.txt").write_text("")
    path = ["--data.init_args.path", tmp_path / "empty.txt"]
    line = relbias_fails("fit", *words, *path, "--run_dir", tmp_path / "run")
    assert line.endswith("empty.txt is empty; give a text")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("recipe", "rule"), [("lengths", "addition"), ("reverse", "reverse")])
def test_exact_match_by_length(recipe, rule, tmp_path):
    network = "{num_tokens: 13, dim: 8, depth: 1, num_heads: 2}"
    data = f"{{rule: {rule}, length: 3, test_lengths: [5], batch_size: 8, num_test: 12}}"
    words = ["-c", f"language/{recipe}", *QUIET, "--model.init_args.network.init_args", network]
    run = tmp_path / "run"
    assert cli.main(["fit", *words, "--data.init_args", data, "--run_dir", str(run)]) == 0
    assert cli.main(["test", str(run)]) == 0
    tested = json.loads((run / "test.json").read_text())
    assert {"test/exact_match", "test/exact_match_5", "test/loss", "test/loss_5"} <= tested.keys()
    rows = extrapolation(tmp_path, run, "--at", "2,5")
    assert [row["metric"] for row in rows] == ["exact_match", "loss"] * 2
    assert float(rows[3]["value"]) == pytest.approx(tested["test/loss_5"], abs=1e-6)
    assert cli.main(["predict", str(run)]) == 0
    predicted = list(csv.DictReader((run / "predictions.csv").open(newline="")))
    assert len(predicted) == 12
    assert sum(int(row["exact_match"]) for row in predicted) / 12 == pytest.approx(tested["test/exact_match"])
