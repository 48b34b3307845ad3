"""The task over graphs: losses, units, missing labels, nodes, and what does not fit."""

import sys
import types

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.data.graph_sets import Rings, labels, parity, ring, sizes
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import global_add_pool

from relbias.data import GraphData
from relbias.tasks import GraphPrediction
from relbias.tasks.graph_metrics import LabelScores


class Count(nn.Module):
    """An affine function of the number of nodes, for each graph or for each of its nodes."""

    def __init__(self, num_outputs=1, nodes=False):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.0, num_outputs))
        self.shift = nn.Parameter(-torch.ones(num_outputs))
        self.nodes = nodes

    def forward(self, x, edge_index, batch):
        ones = torch.ones(len(x), 1)
        each = ones.cumsum(0) / 7 if self.nodes else global_add_pool(ones, batch)
        return each * self.scale + self.shift


def task_of(data, network):
    task = GraphPrediction(lambda encoding: network, "none", warmup_epochs=0)
    data.adapt_to(task)
    data.setup()
    return task


def trainer(**options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(accelerator="cpu", enable_model_summary=False, **quiet, **options)


def results(data, task):
    [metrics] = trainer().test(task, datamodule=data, verbose=False)
    return metrics


def loss_of(task, batch):
    task.log = lambda *args, **options: None  # there is no Trainer
    return task.training_step(batch, 0)


def outputs_and_targets(data, task):
    batches = list(data.test_dataloader())
    return torch.cat([task(batch).detach() for batch in batches]), torch.cat([batch.y for batch in batches])


def test_a_regression_is_normalised_within_and_reported_in_its_own_unit():
    data = GraphData(lambda: Rings(sizes), batch_size=4)
    task = task_of(data, Count())
    outputs, y = outputs_and_targets(data, task)
    mean, std = data.target_mean[0], data.target_std[0]
    error = (outputs[:, 0] * std + mean - y).numpy()
    assert results(data, task) == pytest.approx(
        {"test/mae": np.abs(error).mean(), "test/rmse": np.sqrt((error**2).mean())}, rel=1e-5
    )
    batch = next(iter(data.test_dataloader()))
    expected = (task(batch)[:, 0] - (batch.y - mean) / std).abs().mean()
    assert loss_of(task, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    columns = task.predict_step(batch, 0)
    assert torch.equal(columns["target"], batch.y)
    assert torch.allclose(columns["prediction"], task(batch)[:, 0] * std + mean)


def test_missing_targets_of_a_regression_count_nowhere():
    both = lambda i, n: torch.tensor([[float(n), float("nan") if i % 2 else 2.5 * n]])  # noqa: E731
    data = GraphData(lambda: Rings(both), batch_size=4)
    task = task_of(data, Count(2))
    outputs, y = outputs_and_targets(data, task)
    error = outputs * torch.tensor(data.target_std) + torch.tensor(data.target_mean) - y
    assert y.isnan().any()
    assert results(data, task)["test/mae"] == pytest.approx(error[~error.isnan()].abs().mean().item(), rel=1e-5)
    batch = next(iter(data.train_dataloader()))
    loss = loss_of(task, batch)
    loss.backward()
    known = ~batch.y.isnan()
    normalised = (batch.y - torch.tensor(data.target_mean)) / torch.tensor(data.target_std)
    assert loss.item() == pytest.approx((task(batch) - normalised)[known].abs().mean().item(), rel=1e-5)
    assert task.network.scale.grad.isfinite().all()


def test_classes():
    data = GraphData(lambda: Rings(parity), batch_size=4)
    task = task_of(data, Count(2))
    outputs, y = outputs_and_targets(data, task)
    assert results(data, task) == {"test/accuracy": pytest.approx((outputs.argmax(1) == y).float().mean().item())}
    batch = next(iter(data.test_dataloader()))
    expected = nn.functional.cross_entropy(task(batch), batch.y)
    assert loss_of(task, batch).item() == pytest.approx(expected.item())
    columns = task.predict_step(batch, 0)
    assert torch.equal(columns["prediction"], task(batch).argmax(1))
    assert torch.equal(columns["label"], batch.y)


def test_labels_that_are_missing_count_nowhere():
    data = GraphData(lambda: Rings(labels, 240), batch_size=4)
    task = task_of(data, Count(3))
    outputs, y = outputs_and_targets(data, task)
    scores = {"test/ap": [], "test/auroc": []}
    for column in (0, 1):
        known = ~y[:, column].isnan()
        pair = y[known, column].numpy(), outputs[known, column].numpy()
        scores["test/ap"].append(average_precision_score(*pair))
        scores["test/auroc"].append(roc_auc_score(*pair))
    assert results(data, task) == pytest.approx({name: np.mean(both) for name, both in scores.items()}, rel=1e-5)
    batch = next(iter(data.test_dataloader()))
    known = ~batch.y.isnan()
    expected = nn.functional.binary_cross_entropy_with_logits(task(batch)[known], batch.y[known])
    assert loss_of(task, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    batch.y[:] = float("nan")
    assert loss_of(task, batch).item() == 0
    assert set(task.predict_step(batch, 0)) == {
        f"{name}_{number}" for name in ("label", "probability") for number in range(3)
    }


def test_labels_with_one_value_alone_do_not_count():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(50, 3, generator=generator)
    targets = (torch.rand(50, 3, generator=generator) > 0.7).float()
    targets[torch.rand(50, 3, generator=generator) > 0.6] = float("nan")
    targets[:, 1] = 0.0
    expected = {"ap": average_precision_score, "auroc": roc_auc_score}
    for name, score in expected.items():
        metric = LabelScores(name)
        metric.update(outputs[:20], targets[:20])
        metric.update(outputs[20:], targets[20:])
        known = ~targets.isnan()
        scores = [score(targets[known[:, column], column], outputs[known[:, column], column]) for column in (0, 2)]
        assert metric.compute().item() == pytest.approx(np.mean(scores), rel=1e-5)


def test_no_label_with_both_values_gives_nan():
    metric = LabelScores("ap")
    metric.update(torch.zeros(3, 1), torch.ones(3, 1))
    assert metric.compute().isnan()


def test_the_evaluator_of_ogb_is_given_what_it_takes(monkeypatch):
    class Evaluator:
        """The mean of what was given, in the form of ogb's."""

        eval_metric = "rocauc"

        def __init__(self, name):
            assert name == "ogbg-own"

        def eval(self, given):
            assert given["y_true"].shape == given["y_pred"].shape == (24, 3)
            known = ~np.isnan(given["y_true"])
            return {"rocauc": roc_auc_score(given["y_true"][known], given["y_pred"][known])}

    monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", types.SimpleNamespace(Evaluator=Evaluator))
    data = GraphData(lambda: Rings(labels, 240), batch_size=7)
    task = GraphPrediction(lambda encoding: Count(3), "none", evaluator="ogbg-own")
    data.adapt_to(task)
    data.setup()
    outputs, y = outputs_and_targets(data, task)
    known = ~y.isnan()
    assert results(data, task)["test/ogb_rocauc"] == pytest.approx(roc_auc_score(y[known], outputs[known]))


def test_an_evaluator_needs_ogb(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.delitem(sys.modules, "ogb.graphproppred", raising=False)
    with pytest.raises(ValueError, match=r"is not installed; run: pip install ogb"):
        GraphPrediction(lambda encoding: Count(), "none", evaluator="ogbg-molhiv")


def citations():
    torch.manual_seed(0)
    part = torch.randint(3, (40,))
    masks = {f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))}
    return [ring(40, (torch.arange(40) > 20).long(), **masks)]


def test_nodes_of_the_part_alone_count():
    data = GraphData(citations)
    task = task_of(data, Count(2, nodes=True))
    [graph] = citations()
    outputs = task(next(iter(data.test_dataloader()))).detach()
    right = (outputs.argmax(1) == graph.y)[graph.test_mask].float().mean().item()
    assert results(data, task) == {"test/accuracy": pytest.approx(right)}
    assert right != (outputs.argmax(1) == graph.y).float().mean().item()
    [batch] = data.train_dataloader()
    expected = nn.functional.cross_entropy(outputs[graph.train_mask], graph.y[graph.train_mask])
    assert loss_of(task, batch).item() == pytest.approx(expected.item())


class Everything(nn.Module):
    """Keeps what it was given."""

    def forward(self, x, edge_index, **others):
        self.given = {"x": x, "edge_index": edge_index, **others}
        return torch.zeros(int(others["batch"].max()) + 1, 1)


def test_a_network_is_given_what_it_takes():
    data = GraphData(lambda: [ring(size, sizes(0, size), pos=torch.rand(size, 3)) for size in [2, 3, 4] * 8])
    task = task_of(data, Everything())
    batch = next(iter(data.val_dataloader()))
    batch.hops = torch.zeros(5)
    task(batch)
    assert task.network.given.keys() == {"x", "edge_index", "edge_attr", "batch", "pos", "hops"}
    task_of(data, Count())(batch)  # takes x, edge_index and batch


def test_a_network_with_other_outputs_is_refused():
    data = GraphData(lambda: Rings(parity), batch_size=4)
    task = task_of(data, Count(3))
    batch = next(iter(data.val_dataloader()))
    with pytest.raises(ValueError, match=r"gives \(4, 3\) for a batch of 4 graphs") as caught:
        task.check_batch(batch)
    assert "give --model.init_args.network.init_args.num_outputs 2" in str(caught.value)
    task_of(data, Count(2)).check_batch(batch)
    nodes = GraphData(citations)
    with pytest.raises(ValueError, match=r"expected \(40, 2\).*readout nodes"):
        task_of(nodes, Count(2)).check_batch(next(iter(nodes.val_dataloader())))


def test_a_category_beyond_the_batch_that_is_tried_is_refused():
    graphs = [ring(4, sizes(0, i)) for i in range(30)]
    data = GraphData(lambda: graphs, batch_size=2)
    data.setup()
    rare = data.parts["train"].positions[0]
    graphs[rare].x = graphs[rare].x + 5
    data = GraphData(lambda: graphs, batch_size=2)
    network = nn.Embedding(4, 1)
    network.forward = lambda x, batch: global_add_pool(nn.Embedding.forward(network, x[:, 0]), batch)
    task = task_of(data, network)
    with pytest.raises(IndexError):
        task.check_batch(next(iter(data.val_dataloader())))


def test_data_that_does_not_say_what_is_predicted_is_refused():
    task = GraphPrediction(lambda encoding: Count(), "none")
    with pytest.raises(ValueError, match=r"does not say what is predicted; give relbias\.data\.GraphData"):
        task.check_batch(Batch.from_data_list([ring(3, sizes())]))


def test_a_checkpoint_brings_the_normalisation():
    data = GraphData(lambda: Rings(sizes))
    task = task_of(data, Count())
    assert task.target_mean.tolist() == pytest.approx(data.target_mean)
    later = GraphData(lambda: Rings(sizes), **data.found)
    other = GraphPrediction(lambda encoding: Count(), "none")
    later.adapt_to(other)
    other.load_state_dict({**task.state_dict(), "target_mean": torch.tensor([5.0])})
    later.setup()
    assert other.target_mean.tolist() == [5.0]


def test_a_training_learns():
    torch.manual_seed(0)
    data = GraphData(lambda: Rings(sizes), batch_size=8)
    task = task_of(data, Count())
    before = results(data, task)["test/mae"]
    task.lr = 0.1
    trainer(max_epochs=12).fit(task, datamodule=data)
    assert results(data, task)["test/mae"] < before / 3
