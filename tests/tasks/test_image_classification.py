import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relbias.tasks import ImageClassification


class _Copy(nn.Module):
    """Logits that are the first three pixels."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images):
        return self.scale * images.flatten(1)[:, :3]


def _loader(labels, predictions):
    images = nn.functional.one_hot(torch.tensor(predictions), 4).float().view(-1, 1, 2, 2) * 5
    return DataLoader(TensorDataset(images, torch.tensor(labels)), batch_size=2)


def _trainer():
    return Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)


def test_the_network_is_built_from_the_encoding():
    task = ImageClassification(_Copy, {"offset": "t5"}, num_classes=3)
    assert task.network.encoding == {"offset": "t5"}


def test_centred_and_moved_accuracy_come_from_the_two_dataloaders():
    task = ImageClassification(_Copy, "none", num_classes=3)
    # Three images in batches of two: a mean of batches would give 0.75 and 0.25.
    results = _trainer().test(task, [_loader([0, 1, 2], [0, 1, 0]), _loader([0, 1, 2], [0, 0, 0])], verbose=False)
    metrics = {name: value for result in results for name, value in result.items()}
    assert metrics == pytest.approx({"test/accuracy": 2 / 3, "test/accuracy_moved": 1 / 3})


def test_one_test_dataloader_gives_no_moved_accuracy():
    task = ImageClassification(_Copy, "none", num_classes=3)
    [metrics] = _trainer().test(task, _loader([0, 1], [0, 1]), verbose=False)
    assert metrics == {"test/accuracy": 1.0}


class _Sized(LightningDataModule):
    """Two images of 2 x 2 pixels, and two of 4 x 4 on which the network as it is would be wrong."""

    test_sizes = [4]

    def test_dataloader(self):
        small = _loader([0, 1], [0, 1])
        larger = torch.zeros(2, 1, 4, 4)
        larger[0, 0, 0, 2] = larger[1, 0, 0, 0] = 5
        return [small, DataLoader(TensorDataset(larger, torch.tensor([0, 1])), batch_size=2)]


class _Resizable(_Copy):
    def prepare_for_size(self, size):
        self.scale.data.mul_(-1 if size == 4 else 1)


def test_another_size_is_tested_with_a_network_prepared_for_it():
    task = ImageClassification(_Resizable, "none", num_classes=3)
    results = _trainer().test(task, datamodule=_Sized(), verbose=False)
    metrics = {name: value for result in results for name, value in result.items()}
    # With the sign changed the first of (0, 0, -5) is the largest, and the second of (-5, 0, 0).
    assert metrics == {"test/accuracy": 1.0, "test/accuracy_4": 1.0}
    assert task.network.scale.item() == 1.0  # the network itself stays


def test_another_size_needs_a_network_that_takes_it():
    task = ImageClassification(_Copy, "none", num_classes=3)
    with pytest.raises(ValueError, match=r"test_sizes needs a network with prepare_for_size\(size\), got _Copy"):
        _trainer().test(task, datamodule=_Sized(), verbose=False)


def test_validation_loss_is_not_smoothed():
    task = ImageClassification(_Copy, "none", num_classes=3, label_smoothing=0.5)
    [metrics] = _trainer().validate(task, _loader([0, 1, 2], [0, 1, 1]), verbose=False)
    logits = 5.0 * torch.eye(3)[[0, 1, 1]]
    assert metrics["val/loss"] == pytest.approx(nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).item())
    assert metrics["val/accuracy"] == pytest.approx(2 / 3)


def test_predictions_are_classes_with_their_probabilities():
    task = ImageClassification(_Copy, "none", num_classes=3)
    [batch] = _trainer().predict(task, _loader([2, 0], [0, 1]))
    assert batch["label"].tolist() == [2, 0]
    assert batch["prediction"].tolist() == [0, 1]
    expected = torch.tensor([5.0, 0.0, 0.0]).softmax(0)[0].item()
    assert batch["probability"].tolist() == pytest.approx([expected, expected])


@pytest.mark.parametrize(
    ("num_classes", "labels", "message"),
    [
        (4, [0, 1], r"num_classes is 4, and the network maps images \(2, 1, 2, 2\) to \(2, 3\), expected \(2, 4\)"),
        (3, [0, 1, 3], "num_classes is 3, and the data has labels from 0 to 3, expected 0 to 2"),
        (3, [-1, 1], "labels from -1 to 1"),
    ],
)
def test_a_batch_that_does_not_fit(num_classes, labels, message):
    task = ImageClassification(_Copy, "none", num_classes=num_classes)
    with pytest.raises(ValueError, match=message):
        task.check_batch((torch.zeros(len(labels), 1, 2, 2), torch.tensor(labels)))


@pytest.mark.parametrize(("option", "value"), [("num_classes", 1), ("label_smoothing", 1.0), ("label_smoothing", -0.1)])
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} is {value}"):
        ImageClassification(_Copy, "none", **{option: value})
