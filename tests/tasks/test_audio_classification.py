import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relbias.tasks import AudioClassification


class _Sum(nn.Module):
    """Logits that are the sum of the valid frames; more than four are refused."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features, lengths):
        if features.shape[1] > 4:
            raise ValueError("no more than four frames")
        inside = torch.arange(features.shape[1]) < lengths[:, None]
        return self.scale * (features * inside[..., None]).sum(1)


class _Frames(nn.Module):
    """Logits of every second frame."""

    def __init__(self, encoding):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features, lengths):
        return self.scale * features[:, ::2], (lengths + 1) // 2


def _loader(labels, predictions, frames=3):
    """Clips of two frames that tell their class, and padding that tells another."""
    features = 9.0 * nn.functional.one_hot((torch.tensor(predictions) + 2) % 3, 3)[:, None].expand(-1, frames, 3)
    features = features.clone()
    features[:, :2] = 2.0 * nn.functional.one_hot(torch.tensor(predictions), 3)[:, None]
    lengths = torch.full((len(labels),), 2)
    return DataLoader(TensorDataset(features, lengths, torch.tensor(labels)), batch_size=2)


def _trainer():
    return Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)


def _metrics(results):
    return {name: value for result in results for name, value in result.items()}


def test_the_network_is_built_from_the_encoding():
    assert AudioClassification(_Sum, {"offset": "t5"}, num_classes=3).network.encoding == {"offset": "t5"}


def test_metrics_are_over_samples_and_valid_frames():
    task = AudioClassification(_Sum, "none", num_classes=3, label_smoothing=0.5)
    [metrics] = _trainer().validate(task, _loader([1, 1, 2], [1, 2, 2]), verbose=False)
    logits = 4.0 * torch.eye(3)[[1, 2, 2]]
    assert metrics["val/loss"] == pytest.approx(nn.functional.cross_entropy(logits, torch.tensor([1, 1, 2])).item())
    assert metrics["val/accuracy"] == pytest.approx(2 / 3)
    assert _metrics(_trainer().test(task, _loader([1, 1, 2], [1, 2, 2]), verbose=False)) == {
        "test/accuracy": pytest.approx(2 / 3)
    }


class _Lengths(LightningDataModule):
    test_lengths = [4, 5]

    def test_dataloader(self):
        return [_loader([1, 2], [1, 2]), _loader([1, 2], [2, 2], frames=4), _loader([1, 2], [1, 2], frames=5)]


def test_other_lengths_are_tested_and_one_that_is_refused_is_told(capsys):
    task = AudioClassification(_Sum, "none", num_classes=3)
    results = _metrics(_trainer().test(task, datamodule=_Lengths(), verbose=False))
    assert results == {"test/accuracy": 1.0, "test/accuracy_4": 0.5}
    assert capsys.readouterr().err.count("test at 5: left out: no more than four frames") == 1


class _LaterRefused(LightningDataModule):
    test_lengths = [4]

    def test_dataloader(self):
        batches = [*_loader([1, 2], [1, 2], frames=4), *_loader([1, 2], [1, 2], frames=5)]
        return [_loader([1, 2], [1, 2]), DataLoader(batches, batch_size=None)]


def test_a_length_is_left_out_by_its_first_batch_only():
    task = AudioClassification(_Sum, "none", num_classes=3)
    with pytest.raises(
        ValueError, match="no more than four frames"
    ):  # a mean of some of its batches would pass for all
        _trainer().test(task, datamodule=_LaterRefused(), verbose=False)


def test_the_training_length_may_not_be_refused():
    task = AudioClassification(_Sum, "none", num_classes=3)
    with pytest.raises(ValueError, match="no more than four frames"):
        _trainer().test(task, _loader([1, 2], [1, 2], frames=5), verbose=False)


def test_logits_of_frames_are_averaged_over_the_valid_ones():
    task = AudioClassification(_Frames, "none", num_classes=3)
    features = torch.randn(2, 7, 3)
    found = task(features, torch.tensor([7, 3]))
    expected = torch.stack([features[0, [0, 2, 4, 6]].mean(0), features[1, [0, 2]].mean(0)])
    torch.testing.assert_close(found, expected)


def test_predictions_are_classes_with_their_probabilities():
    task = AudioClassification(_Sum, "none", num_classes=3)
    [batch] = _trainer().predict(task, _loader([2, 0], [0, 1]))
    assert batch["label"].tolist() == [2, 0]
    assert batch["prediction"].tolist() == [0, 1]
    expected = torch.tensor([4.0, 0.0, 0.0]).softmax(0)[0].item()
    assert batch["probability"].tolist() == pytest.approx([expected, expected])


@pytest.mark.parametrize(
    ("num_classes", "labels", "lengths", "message"),
    [
        (
            4,
            [0, 1],
            [3, 3],
            r"num_classes is 4, and the network maps features \(2, 3, 3\) to \(2, 3\), expected \(2, 4\)",
        ),
        (3, [0, 1, 3], [3, 3, 3], "num_classes is 3, and the data has labels from 0 to 3, expected 0 to 2"),
        (3, [-1, 1], [3, 3], "labels from -1 to 1"),
        (3, [1, 1], [3, 0], "the data has lengths from 0 to 3, expected 1 to 3, the frames of the batch"),
        (3, [1, 1], [3, 4], "the data has lengths from 3 to 4, expected 1 to 3"),
    ],
)
def test_a_batch_that_does_not_fit(num_classes, labels, lengths, message):
    task = AudioClassification(_Sum, "none", num_classes=num_classes)
    with pytest.raises(ValueError, match=message):
        task.check_batch((torch.zeros(len(labels), 3, 3), torch.tensor(lengths), torch.tensor(labels)))


def test_sizes():
    task = AudioClassification(_Sum, "none", num_classes=3)
    assert task.size_of((torch.zeros(2, 7, 3), torch.tensor([1, 2]), torch.tensor([0, 1]))) == 7
    with pytest.raises(ValueError, match=r"_Sum has no prepare_for_size\(size, unit\)"):
        task.prepare_for_size(9)


@pytest.mark.parametrize(("option", "value"), [("num_classes", 1), ("label_smoothing", 1.0), ("label_smoothing", -0.1)])
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} is {value}"):
        AudioClassification(_Sum, "none", **{option: value})


def test_the_training_loss_is_smoothed(monkeypatch):
    task = AudioClassification(_Sum, "none", num_classes=3, label_smoothing=0.4)
    monkeypatch.setattr(task, "log", lambda *given, **options: None)
    batch = next(iter(_loader([1, 2], [1, 2])))
    probability = (4.0 * torch.eye(3)[1]).log_softmax(0)
    target = torch.tensor([0.4 / 3, 0.6 + 0.4 / 3, 0.4 / 3])
    assert task.training_step(batch, 0).item() == pytest.approx(-(target * probability).sum().item())
