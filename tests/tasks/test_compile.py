import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relbias.models.vision import VisionTransformer
from relbias.tasks import Compile, ImageClassification


def task():
    torch.manual_seed(0)
    sizes = {"image_size": 8, "patch_size": 4, "in_channels": 1, "num_classes": 10}
    return ImageClassification(
        lambda encoding: VisionTransformer(**sizes, dim=8, depth=1, num_heads=2, encoding=encoding), "shaw"
    )


def fit(task, *callbacks):
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(torch.randn(12, 1, 8, 8), torch.arange(12) % 10), batch_size=4)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, callbacks=[*callbacks], **quiet)
    trainer.fit(task, loader)
    return trainer


class _Count(nn.Module):
    """A backend that runs the graph as it is and counts the graphs."""

    graphs = 0

    def __call__(self, graph, example_inputs):
        self.graphs += 1
        return graph.forward


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if not name.endswith("k_proj.bias"):  # softmax cancels it: its gradient is rounding, which Adam enlarges
            torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-6)


def test_a_compiled_training_is_compiled_and_the_same():
    torch._dynamo.reset()
    backend, plain, compiled = _Count(), task(), task()
    fit(plain)
    fit(compiled, Compile(backend=backend))
    assert backend.graphs > 0
    assert_same(plain.state_dict(), compiled.state_dict())


def test_checkpoints_load_either_way(tmp_path):
    torch._dynamo.reset()
    compiled, plain = task(), task()
    fit(compiled, Compile(backend="eager")).save_checkpoint(tmp_path / "compiled.ckpt")
    state = torch.load(tmp_path / "compiled.ckpt", weights_only=True)["state_dict"]
    plain.load_state_dict(state)
    fit(plain).save_checkpoint(tmp_path / "plain.ckpt")
    compiled.load_state_dict(torch.load(tmp_path / "plain.ckpt", weights_only=True)["state_dict"])
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(compiled(images), plain(images))


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_an_evaluation_is_not_compiled(stage):
    torch._dynamo.reset()
    backend, module = _Count(), task()
    Compile(backend=backend).setup(Trainer(logger=False, enable_checkpointing=False), module, stage)
    module(torch.randn(2, 1, 8, 8))
    assert backend.graphs == 0


@pytest.mark.slow
def test_the_default_backend():
    torch._dynamo.reset()
    plain, compiled = task(), task()
    fit(plain)
    fit(compiled, Compile())
    assert_same(plain.state_dict(), compiled.state_dict())
