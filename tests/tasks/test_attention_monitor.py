"""What is logged is what the layers compute, at the right step, and the training does not notice."""

import csv
import math

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import relbias as rb
from relbias.attention.observe import _observers, observe
from relbias.tasks import AttentionMonitor
from relbias.tasks.attention_monitor import _join, _measure


class Network(nn.Module):
    def __init__(self, encoding="t5", implementation="auto"):
        super().__init__()
        self.blocks = nn.ModuleList(
            rb.RelativeAttention(16, 2, encoding, implementation=implementation, dropout=0.2) for _ in range(2)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x, is_causal=True)
        return x


class Regression(LightningModule):
    def __init__(self, network=None, fail_at=None):
        super().__init__()
        torch.manual_seed(0)
        self.network = Network() if network is None else network
        self.fail_at = fail_at
        self.losses = []

    def training_step(self, batch, batch_idx):
        if batch_idx == self.fail_at:
            raise RuntimeError("broken")
        loss = self.network(batch[0]).square().mean()
        self.losses.append(loss.item())
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.network(batch[0]).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def fit(module, path=None, callbacks=(), **options):
    logger = CSVLogger(path, name="", version="") if path else False
    defaults = {"logger": logger, "max_epochs": 2, "log_every_n_steps": 1}
    trainer = Trainer(
        accelerator="cpu", callbacks=list(callbacks), enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **(defaults | options),
    )  # fmt: skip
    data = DataLoader(TensorDataset(torch.randn(16, 5, 16, generator=torch.Generator().manual_seed(1))), batch_size=4)
    torch.manual_seed(2)
    trainer.fit(module, data, data)
    return module


def rows(path, column):
    found = csv.DictReader((path / "metrics.csv").open(newline=""))
    return {int(row["step"]): float(row[column]) for row in found if row.get(column)}


def test_nothing_of_the_training_changes(tmp_path):
    with_monitor = fit(Regression(), tmp_path, [AttentionMonitor(every_n_steps=2)])
    without = fit(Regression())
    assert with_monitor.losses == without.losses
    for ours, theirs in zip(with_monitor.parameters(), without.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert _observers() == ()


class Capture(Callback):
    """Captures every training step's attention beside the monitor."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.context = rb.capture(module)
        self.captured = self.context.__enter__()
        self.encodings = [block.encoding(rb.relations.Sequence()(5, 5)) for block in module.network.blocks]
        self.biases = [terms.entries[0].b.detach()[:, terms.entries[0].index.codes()[0, 0]] for terms in self.encodings]

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.context.__exit__(None, None, None)
        self.seen = getattr(self, "seen", [])
        self.seen.append((self.captured, self.biases))


def test_values_and_steps(tmp_path):
    """Each logged number by a plain loop over the captured weights and the table, at the step of train/loss."""
    capture = Capture()
    fit(Regression(), tmp_path, [AttentionMonitor(every_n_steps=3), capture])
    assert list(rows(tmp_path, "train/loss")) == list(range(8))
    name = "attention/blocks.1/"
    assert list(rows(tmp_path, f"{name}entropy")) == [2, 5]
    for step in (2, 5):
        captured, biases = capture.seen[step]
        (record,) = [record for record in captured if record.name == "network.blocks.1"]
        entropies, logits, added = [], [], []
        for b in range(4):
            for h in range(2):
                for i in range(5):
                    weights = record.weights[b, h, i, : i + 1].double().tolist()
                    entropies.append(-sum(p * math.log(p) for p in weights))
                    logits += record.logits[b, h, i, : i + 1].tolist()
                    added += biases[1][h, i, : i + 1].tolist()
        assert rows(tmp_path, f"{name}entropy")[step] == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)
        assert rows(tmp_path, f"{name}max_logit")[step] == pytest.approx(max(logits), rel=1e-5)
        assert rows(tmp_path, f"{name}b_min")[step] == pytest.approx(min(added), rel=1e-5)
        assert rows(tmp_path, f"{name}b_max")[step] == pytest.approx(max(added), rel=1e-5)
    assert not any("K_min" in column for column in next(csv.reader((tmp_path / "metrics.csv").open())))


def test_accumulated_batches_log_the_first(tmp_path):
    capture = Capture()
    fit(Regression(), tmp_path, [AttentionMonitor(every_n_steps=2), capture], accumulate_grad_batches=2)
    entropy = rows(tmp_path, "attention/blocks.0/entropy")
    assert list(entropy) == [1, 3]
    for step, batch in ((1, 2), (3, 6)):
        weights = capture.seen[batch][0][0].weights
        assert entropy[step] == pytest.approx(torch.special.entr(weights).sum(-1).mean().item(), rel=1e-5)


def measured(q, terms=None, **arguments):
    class Layer(nn.Module):
        def forward(self, q):
            return rb.relative_attention(q, q, q, terms, **arguments)

    layer, found = Layer(), []
    with observe(layer, lambda name, call: found.append(_measure(call))):
        layer(q)
    return {name: value.item() for name, value in found[0].items()}


def test_every_term():
    offsets = rb.relations.Sequence(max_distance=1)(3, 3)
    one = torch.ones(1, 3, 2)
    terms = rb.Terms(
        b=torch.tensor([[-1.0, 0.0, 2.0]]), g=torch.tensor([[[1.0, 10.0, 1.0]]]), K=one * 3, w=torch.ones(1, 2),
        Q=one * 5, u=torch.tensor([[1.0, 1.0]]), V=torch.tensor([[[3.0, 4.0], [0.0, 1.0], [0.0, 2.0]]]), index=offsets,
    )  # fmt: skip
    terms = terms + rb.Terms(b=torch.full((3, 3), 100.0))
    found = measured(torch.ones(1, 1, 3, 2), terms, scale=0.5)
    expected = {"u": (1, 1), "K": (6, 6), "Q": (5, 5), "b": (90, 120), "V_norm": (1, 5)}
    for name, (low, high) in expected.items():
        assert (found[f"{name}_min"], found[f"{name}_max"]) == (low, high)
    assert found["max_logit"] == 1 + 1 + 6 + 5 + 120


def test_hidden_pairs_and_empty_rows_do_not_count():
    """The first query sees nothing, the second two keys with weights 1/4 and 3/4, and the bias -inf is no number."""
    bias = torch.zeros(3, 3)
    bias[1, 1], bias[1, 2], bias[2, 0] = math.log(3), -math.inf, -1000.0
    mask = torch.tensor([[False] * 3, [True] * 3, [False, True, False]])
    found = measured(torch.zeros(1, 1, 3, 2), rb.Terms(b=bias), attn_mask=mask)
    assert found["queries"] == 2
    assert found["entropy"] == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    assert (found["b_min"], found["b_max"]) == (0.0, pytest.approx(math.log(3)))


def test_nothing_visible_is_not_logged(tmp_path):
    class Blind(Network):
        def forward(self, x):
            return x + self.blocks[0](x, attn_mask=torch.zeros(5, 5, dtype=torch.bool))

    fit(Regression(Blind()), tmp_path, [AttentionMonitor(every_n_steps=1)])
    header = next(csv.reader((tmp_path / "metrics.csv").open()))
    assert not any(column.startswith("attention") for column in header)


class Twice(Network):
    """Calls one layer twice, and the other under recomputation."""

    def forward(self, x):
        return self.blocks[0](self.blocks[0](x) * 3) + checkpoint(self.blocks[1], x, use_reentrant=False)


def test_two_calls_of_a_layer_are_one_and_recomputation_is_none(tmp_path):
    capture = Capture()
    fit(Regression(Twice()), tmp_path, [AttentionMonitor(every_n_steps=4), capture])
    first, second, _ = capture.seen[3][0]
    entropy = torch.special.entr(torch.stack([first.weights, second.weights])).sum(-1).mean().item()
    assert rows(tmp_path, "attention/blocks.0/entropy")[3] == pytest.approx(entropy, rel=1e-5)
    largest = max(first.logits.max().item(), second.logits.max().item())
    assert rows(tmp_path, "attention/blocks.0/max_logit")[3] == pytest.approx(largest, rel=1e-5)
    assert capture.seen[3][0][2].name == "network.blocks.1"


def test_the_numbers_of_two_calls():
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    for first, second in ((one, two), (two, one)):
        found = {name: _join(name, first, second).item() for name in ("b_min", "b_max", "max_logit", "entropy")}
        assert found == {"b_min": 1, "b_max": 2, "max_logit": 2, "entropy": 3}


def test_an_error_in_a_step_ends_the_watch(tmp_path):
    with pytest.raises(RuntimeError, match="broken"):
        fit(Regression(fail_at=2), tmp_path, [AttentionMonitor(every_n_steps=1)])
    assert _observers() == ()


def test_a_skipped_rest_of_an_epoch_ends_the_watch(tmp_path):
    class Skipping(Regression):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 1 else None

        def on_train_epoch_end(self):
            assert _observers() == ()  # modules' hooks come after callbacks'

    fit(Skipping(), tmp_path, [AttentionMonitor(every_n_steps=1)])
    assert len(rows(tmp_path, "attention/blocks.0/entropy")) == 2


def test_no_logger_no_work(monkeypatch):
    monkeypatch.setattr("relbias.tasks.attention_monitor._measure", None)
    fit(Regression(), callbacks=[AttentionMonitor(every_n_steps=1)])


def test_a_network_without_attention_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="saw no attention of relbias"):
        fit(Regression(nn.Linear(16, 16)), tmp_path, [AttentionMonitor(every_n_steps=1)], max_epochs=1)


def test_a_training_too_short_to_log_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="logged nothing: it logs every 50 steps"):
        fit(Regression(), tmp_path, [AttentionMonitor(every_n_steps=50)], max_epochs=1)


def test_one_monitor_for_two_trainings(tmp_path):
    monitor = AttentionMonitor(every_n_steps=8)  # the last step, which the first training has logged already
    steps = []
    for name in ("first", "second"):
        fit(Regression(), tmp_path / name, [monitor])
        steps.append(list(rows(tmp_path / name, "attention/blocks.0/entropy")))
    assert steps == [[7]] * 2


def test_every_logger_has_the_numbers_at_once(tmp_path):
    column, found = "attention/blocks.0/entropy", []

    class Reads(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            found.append([list(rows(tmp_path / name, column)) for name in ("a", "b")])

    loggers = [CSVLogger(tmp_path, name=name, version="") for name in ("a", "b")]
    fit(Regression(), None, [AttentionMonitor(every_n_steps=1), Reads()], logger=loggers, max_steps=2)
    assert found == [[[0], [0]], [[0, 1], [0, 1]]]


def test_only_the_first_process_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "is_global_zero", False)
    monkeypatch.setattr("relbias.tasks.attention_monitor._measure", None)
    fit(Regression(), tmp_path, [AttentionMonitor(every_n_steps=1)], max_steps=2)


def test_fewer_than_one_step_is_refused():
    with pytest.raises(ValueError, match="every_n_steps is 0, expected at least 1"):
        AttentionMonitor(every_n_steps=0)
