from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import relbias as rb
from relbias.cli.plot_attention import attention
from relbias.data import Digits
from relbias.models.vision import VisionTransformer
from relbias.tasks import ImageClassification, Task


class WithClassToken(nn.Module):
    """Patches of 4 x 4 pixels, a class token, and one layer that is called twice."""

    def __init__(self, encoding, relation):
        super().__init__()
        self.attention = rb.RelativeAttention(8, 2, encoding, relation, dropout=0.5)

    def forward(self, images):
        patches = nn.functional.avg_pool2d(images, 4).flatten(2).mT.expand(-1, -1, 8)
        tokens = nn.functional.pad(patches, (0, 0, 1, 0))
        return self.attention(self.attention(tokens))[:, 0]


def experiment(network, encoding="table"):
    return SimpleNamespace(model=ImageClassification(network, encoding), datamodule=Digits())


def with_class_token(relation):
    return experiment(lambda encoding: WithClassToken(encoding, relation))


def first_image():
    data = Digits()
    data.setup()
    return data.test[0][0][None]


def read(path):
    """The weights by layer and head, in the order of the keys."""
    weights = {}
    for line in path.read_text().splitlines()[1:]:
        layer, head, *_, weight = line.rsplit(",", 5)
        weights.setdefault((layer.strip('"'), head), []).append(float(weight))
    return weights


@pytest.mark.parametrize("encoding", ["table", "none", "sinusoidal", {"a": "table", "b": "shaw"}])
def test_every_layer_with_its_grid_whatever_the_encoding(encoding, tmp_path):
    sizes = {"image_size": 16, "patch_size": 4, "in_channels": 1, "num_classes": 10, "dim": 8, "num_heads": 2}
    run = experiment(lambda encoding: VisionTransformer(encoding, **sizes, depth=2), encoding)
    _, table = attention(run)(tmp_path / "attention.png", title="run")
    found = read(table)
    with torch.no_grad(), rb.capture(run.model) as captured:
        run.model(first_image())
    assert [record.name for record in captured] == ["network.blocks.0.attention", "network.blocks.1.attention"]
    assert len(found) == 2 * 3
    for record in captured:
        for head in range(2):
            assert np.allclose(found[record.name, f"head {head}"], record.weights[0, head].mean(dim=0))


def test_the_class_token_and_both_calls_of_a_layer(tmp_path):
    run = with_class_token(rb.relations.Grid(4, 4, prefix_tokens=1))
    _, table = attention(run)(tmp_path / "attention.png", title="run")
    assert not run.model.training  # no dropout
    with torch.no_grad(), rb.capture(run.model) as captured:
        run.model(first_image())
    found = read(table)
    names = ["network.attention", "network.attention, call 2"]
    assert list(found) == [(name, head) for name in names for head in ("head 0", "head 1", "mean")]
    for name, record in zip(names, captured, strict=True):
        assert np.allclose(found[name, "head 1"], record.weights[0, 1, 0])


class Untold(Task):
    pass


class Other(Task):
    attention_figure = "imgae"


def test_what_has_no_figure():
    for task, what in ((Untold(), "no attention_figure; known: image"), (Other(), "'imgae'; did you mean 'image'")):
        with pytest.raises(ValueError, match=f"the attention of {type(task).__name__} is not drawn: it has .*{what}"):
            attention(SimpleNamespace(model=task, datamodule=Digits()))
    with pytest.raises(ValueError, match="no encoding over a Grid"):
        attention(with_class_token(rb.relations.Sequence(max_distance=3)))


def test_a_network_without_attention():
    grid = rb.relations.Grid(4, 4)
    run = experiment(lambda encoding: nn.Sequential(nn.Flatten(), nn.Linear(256, 10)))
    run.model.encoding = rb.create_encoding("table", 2, 4, grid)
    with pytest.raises(ValueError, match="no attention of relbias ran in ImageClassification"):
        attention(run)


def test_data_without_a_test_sample():
    run = with_class_token(rb.relations.Grid(4, 4, prefix_tokens=1))
    run.datamodule.test_dataloader = lambda: []
    with pytest.raises(ValueError, match="the data has no test batch"):
        attention(run)
