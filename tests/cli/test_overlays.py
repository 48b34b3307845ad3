"""The overlays of the Trainer, laid on a recipe."""

import pytest
import torch
import yaml

from relbias.cli import main as cli


@pytest.mark.parametrize("name", ["bf16", "compile", "ddp", "fsdp"])
def test_overlays_can_be_laid_on_a_recipe(name, capsys):
    assert cli.main(["check", f"trainer/{name}"]) == 0
    assert capsys.readouterr().out.startswith(f"ok  trainer/{name} on ")


def test_bfloat16_trains_in_bfloat16(tiny, tmp_path, monkeypatch):
    dtypes = set()
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear, "forward", lambda self, x: dtypes.add(forward(self, x).dtype) or forward(self, x)
    )
    assert cli.main(["fit", *tiny, "-c", "trainer/bf16", "--run_dir", str(tmp_path / "run")]) == 0
    assert torch.bfloat16 in dtypes
    state = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {torch.float32}
    assert cli.main(["validate", str(tmp_path / "run")]) == 0


def test_a_compiled_run_is_a_run_as_any_other(tiny, run_dir, tmp_path, monkeypatch, capsys):
    compiled = []
    compile_ = torch.nn.Module.compile
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda self, **options: compiled.append((type(self).__name__, options)) or compile_(self, **options),
    )
    eager = "{class_path: relbias.tasks.Compile, init_args: {backend: eager}}"
    path = tmp_path / "run"
    words = ["fit", *tiny, "-c", "trainer/compile", "--trainer.callbacks", eager, "--run_dir", str(path)]
    assert cli.main(words) == 0
    assert compiled == [("VisionTransformer", {"backend": "eager"})]
    assert len(yaml.safe_load((path / "config.yaml").read_text())["trainer"]["callbacks"]) == 1
    own, plain = (
        torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"] for folder in (path, run_dir)
    )
    assert own.keys() == plain.keys()
    assert cli.main(["test", str(path)]) == 0
    assert len(compiled) == 1
    words = ["fit", *tiny, "--weights", str(path), "--run_dir", str(tmp_path / "plain")]
    assert cli.main(words) == 0
    words = [*words[:-3], str(run_dir), "--trainer.callbacks", eager, "--run_dir", str(tmp_path / "compiled")]
    assert cli.main(words) == 0
    assert len(compiled) == 2


def test_shards_are_refused_on_a_processor(tiny, tmp_path, relbias_fails):
    cpu = ["-c", "trainer/fsdp", "--trainer.accelerator", "cpu", "--trainer.devices", "1"]
    message = relbias_fails("fit", *tiny, *cpu, "--run_dir", tmp_path / "run")
    assert "The strategy `fsdp` requires a GPU accelerator, but received `accelerator='cpu'`" in message
    assert not any(tmp_path.iterdir())
