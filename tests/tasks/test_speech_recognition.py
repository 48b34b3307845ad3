"""CTC against a sum over all alignments, greedy decoding, and error rates at several lengths."""

import itertools
import random

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from relbias.models import SpeechTransformer
from relbias.tasks import SpeechRecognition
from relbias.tasks.speech_recognition import edit_distance, greedy

LABELS = 3  # and the blank, output 3
MELS = 5


def task(encoding="alibi", **options):
    torch.manual_seed(0)
    sizes = {"num_outputs": LABELS + 1, "num_mels": MELS, "dim": 8, "depth": 1, "num_heads": 2, **options}
    return SpeechRecognition(lambda encoding: SpeechTransformer(encoding, **sizes), encoding).eval()


def batch(labels, frames=(8, 5, 6)):
    """Clips of noise, with so many labels each; what stands behind a clip's last label is no label."""
    generator = torch.Generator().manual_seed(sum(labels))
    features = torch.randn(len(labels), max(frames), MELS, generator=generator)
    targets = torch.full((len(labels), max(labels)), -1)
    for row, number in zip(targets, labels, strict=True):
        row[:number] = torch.randint(LABELS, (number,), generator=generator)
    return features, torch.tensor(frames[: len(labels)]), targets, torch.tensor(labels)


def collapsed(path):
    return [label for label, _ in itertools.groupby(path) if label != LABELS]


def alignments_loss(outputs, labels):
    """Minus the logarithm of the probability of all paths that collapse to the labels."""
    probabilities = outputs.double().softmax(-1)
    paths = itertools.product(range(LABELS + 1), repeat=len(outputs))
    total = sum(
        torch.stack([row[label] for row, label in zip(probabilities, path, strict=True)]).prod()
        for path in paths
        if collapsed(path) == labels
    )
    return -torch.log(total).item()


def test_the_loss_is_of_all_alignments():
    ours = task()
    given = batch([2, 1, 3])
    _, _, targets, numbers = given
    targets[2] = torch.tensor([0, 2, 0])  # no two alike side by side, for its three tokens
    with torch.no_grad():
        losses, outputs, tokens = ours.losses(given)
    assert tokens.tolist() == [4, 3, 3]
    for number in range(3):
        labels = targets[number, : numbers[number]].tolist()
        expected = alignments_loss(outputs[number, : tokens[number]], labels)
        assert losses[number].item() == pytest.approx(expected, abs=1e-4)
    scores = ours.scores(given)
    assert scores["loss"][0].item() == pytest.approx(losses.sum().item() / 6, abs=1e-5)
    assert scores["loss"][1] == scores["error_rate"][1] == 6


def test_clips_too_short_for_their_labels_cost_nothing():
    ours = task()
    features, lengths, targets, numbers = batch([2, 3])
    targets[1] = torch.tensor([1, 1, 1])  # a blank between each takes 5 tokens, of which there are 3
    losses, _, _ = ours.losses((features, lengths, targets, numbers))
    assert losses[1] == 0
    losses.sum().backward()
    gradients = [parameter.grad for parameter in ours.parameters()]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)


def plain_distance(wanted, found):
    """By the definition, from the ends of both lists."""
    if not wanted or not found:
        return len(wanted) + len(found)
    if wanted[-1] == found[-1]:
        return plain_distance(wanted[:-1], found[:-1])
    options = ((wanted[:-1], found), (wanted, found[:-1]), (wanted[:-1], found[:-1]))
    return 1 + min(plain_distance(*option) for option in options)


def test_decoding_and_distance_are_those_of_plain_loops():
    generator = random.Random(0)
    paths = [[generator.randrange(LABELS + 1) for _ in range(6)] for _ in range(40)]
    lengths = torch.tensor([generator.randrange(1, 7) for _ in paths])
    decoded = greedy(torch.eye(LABELS + 1)[torch.tensor(paths)], lengths)
    assert decoded == [collapsed(path[:length]) for path, length in zip(paths, lengths, strict=True)]
    assert len({tuple(row) for row in decoded}) > 20
    assert [] in decoded
    for wanted, found in itertools.pairwise(decoded):
        assert edit_distance(wanted, found) == plain_distance(wanted, found)


class Echo(nn.Module):
    """The labels are written in the features, as a token each and with a blank after it."""

    def forward(self, features, lengths):
        return features, lengths


class OneTensor(nn.Module):
    def forward(self, features, lengths):
        return features


def spoken(rows, targets):
    """A batch in which so many labels are heard, and others are wanted."""
    length = max(map(len, rows))
    tokens = torch.tensor(
        [[token for label in row for token in (label, LABELS)] + [LABELS] * 2 * (length - len(row)) for row in rows]
    )
    numbers = torch.tensor([len(row) for row in targets])
    wanted = torch.tensor([row + [-1] * (int(numbers.max()) - len(row)) for row in targets])
    features = 20.0 * torch.eye(LABELS + 1)[tokens]
    return features, torch.full((len(rows),), 2 * length), wanted, numbers


class Data(LightningDataModule):
    test_lengths = [1, 3]

    def __init__(self):
        super().__init__()
        self.sets = [
            spoken([[0, 1], [2, 2], [1, 0]], [[0, 1], [2, 1], [1, 0]]),  # one of six replaced
            spoken([[0], [2, 2], [1]], [[0], [2], [1]]),  # one put in
            spoken([[0, 1, 2], [2], [0]], [[0, 1, 2], [2, 1, 0], [2, 0, 1]]),  # two and two missing, of nine
        ]

    def loader(self, tensors):
        return DataLoader(TensorDataset(*tensors), batch_size=2)

    def val_dataloader(self):
        return self.loader(self.sets[0])

    def test_dataloader(self):
        return [self.loader(tensors) for tensors in self.sets]

    def predict_dataloader(self):
        return self.loader(self.sets[2])


def trainer():
    return Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)


def test_error_rates_are_over_all_labels_and_by_length():
    ours = SpeechRecognition(lambda encoding: Echo(), "none")
    results = trainer().test(ours, Data(), verbose=False)
    found = {name: value for result in results for name, value in result.items()}
    assert {name for name in found if "loss" in name} == {"test/loss", "test/loss_1", "test/loss_3"}
    assert found["test/error_rate"] == pytest.approx(1 / 6)
    assert found["test/error_rate_1"] == pytest.approx(1 / 3)
    assert found["test/error_rate_3"] == pytest.approx(4 / 9)
    (metrics,) = trainer().validate(ours, Data(), verbose=False)
    assert metrics["val/error_rate"] == pytest.approx(1 / 6)
    assert metrics["val/loss"] == pytest.approx(found["test/loss"])


def test_predictions_are_the_decoded_labels():
    ours = SpeechRecognition(lambda encoding: Echo(), "none")
    first, second = trainer().predict(ours, Data())
    assert (first["labels"], first["decoded"]) == (["0 1 2", "2 1 0"], ["0 1 2", "2"])
    assert (second["labels"], second["decoded"]) == (["2 0 1"], ["0"])
    assert [*first["edits"].tolist(), *second["edits"].tolist()] == [0, 2, 2]


def test_lengths_that_the_network_refuses_are_told_and_left_out(capsys):
    class Short(LightningDataModule):
        test_lengths = [3]

        def test_dataloader(self):
            sets = (batch([2, 1], (8, 5)), batch([3, 3], (12, 12)))
            return [DataLoader(TensorDataset(*tensors), batch_size=2) for tensors in sets]

    ours = task("learned", max_length=4)
    results = trainer().test(ours, Short(), verbose=False)
    assert sorted(name for result in results for name in result) == ["test/error_rate", "test/loss"]
    assert "test at 3: left out: 'learned' has 4 positions, got 6 tokens" in capsys.readouterr().err


def test_a_network_that_does_not_fit_is_refused_before_the_training():
    given = batch([2, 1, 3])
    task().check_batch(given)
    with pytest.raises(ValueError, match="the network has 1 labels and the blank, and the data has labels from 0 to 2"):
        task(num_outputs=2).check_batch(given)
    with pytest.raises(ValueError, match=r"the network gives one tensor, expected outputs \(B, N, O\)"):
        SpeechRecognition(lambda encoding: OneTensor(), "none").check_batch(given)


def test_a_batch_of_clips_without_labels_trains_the_blank():
    ours = task()
    ours.log = lambda *arguments, **options: None
    features, lengths, _, _ = batch([1, 1])
    silent = features, lengths, torch.full((2, 1), -1), torch.tensor([0, 0])
    ours.check_batch(silent)
    losses, _, _ = ours.losses(silent)
    loss = ours.training_step(silent, 0)
    loss.backward()
    assert loss == losses.sum()  # nats of blanks alone
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in ours.parameters())
    assert all(value.isfinite() and not weight for value, weight in ours.scores(silent).values())


def test_the_size_of_a_batch_is_its_longest_string():
    assert task().size_of(batch([2, 1, 3])) == 3
    with pytest.raises(ValueError, match="no table of a sequence is made longer"):
        task().prepare_for_size(3)
