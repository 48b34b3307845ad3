import math

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from relbias.models import LanguageModel
from relbias.tasks import LanguageModeling, SequenceToSequence

IGNORED = -100


def model(encoding, **options):
    return LanguageModel(encoding, **{"num_tokens": 11, "dim": 16, "depth": 1, "num_heads": 2, **options})


def task(encoding="alibi", cls=LanguageModeling, **options):
    torch.manual_seed(0)
    return cls(lambda encoding: model(encoding, **options), encoding)


def trainer():
    return Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)


def windows(length, count, ignored=()):
    generator = torch.Generator().manual_seed(length)
    text = torch.randint(11, (count, length + 1), generator=generator)
    targets = text[:, 1:].clone()
    for place in ignored:
        targets[place] = IGNORED
    return text[:, :-1].contiguous(), targets


class Data(LightningDataModule):
    """Windows of 8 tokens, and of other lengths; batches of two, so that the last of three windows is alone."""

    def __init__(self, *lengths, ignored=()):
        super().__init__()
        self.test_lengths, self.ignored = list(lengths), list(ignored)

    def loader(self, length):
        return DataLoader(TensorDataset(*windows(length, 3, self.ignored)), batch_size=2)

    def test_dataloader(self):
        return [self.loader(length) for length in (8, *self.test_lengths)]


def measured(task, data):
    return {name: value for result in trainer().test(task, data, verbose=False) for name, value in result.items()}


@torch.no_grad()
def expected(task, length, ignored=()):
    """Plain loops over the tokens: the mean loss, and that of the last quarter."""
    tokens, targets = windows(length, 3, ignored)
    logits = task.network.eval()(tokens).double().log_softmax(-1)
    losses = [
        [(-logits[b, n, targets[b, n]].item(), n) for n in range(length) if targets[b, n] != IGNORED] for b in range(3)
    ]
    losses = [pair for row in losses for pair in row]
    late = [loss for loss, n in losses if n >= length - length // 4]
    return sum(loss for loss, _ in losses) / len(losses), sum(late) / len(late)


def test_losses_are_means_over_all_tokens_and_over_the_last_quarter():
    ours = task()
    found = measured(ours, Data(4, 12))
    wanted = {}
    for suffix, length in (("", 8), ("_4", 4), ("_12", 12)):
        wanted[f"test/loss{suffix}"], wanted[f"test/loss_last_quarter{suffix}"] = expected(ours, length)
    wanted["test/perplexity"] = math.exp(wanted["test/loss"])
    assert len({round(value, 4) for value in wanted.values()}) == 7
    assert found == pytest.approx(wanted, abs=1e-5)


def test_ignored_targets_count_nowhere():
    ignored = [(0, 0), (0, 7), (2, slice(None))]  # the last window, a batch of its own, has none that count
    ours = task()
    loss, late = expected(ours, 8, ignored)
    assert abs(loss - expected(ours, 8)[0]) > 1e-3
    found = measured(ours, Data(ignored=ignored))
    assert found == pytest.approx(
        {"test/loss": loss, "test/loss_last_quarter": late, "test/perplexity": math.exp(loss)}, abs=1e-5
    )


def test_the_training_and_the_validation_loss():
    ours = task().eval()
    tokens, targets = windows(8, 3, [(0, 1), (1, slice(None))])
    wanted = F.cross_entropy(ours(tokens).flatten(0, 1), targets.flatten())
    ours.log = lambda *args, **options: None
    assert torch.allclose(ours.training_step((tokens, targets), 0), wanted)
    loader = DataLoader(TensorDataset(tokens, targets), batch_size=2)
    del ours.log
    (metrics,) = trainer().validate(ours, loader, verbose=False)
    assert metrics == {"val/loss": pytest.approx(wanted.item(), abs=1e-6)}


def test_a_text_without_structure_costs_the_logarithm_of_the_tokens():
    class Uniform(nn.Module):
        def forward(self, tokens):
            return torch.zeros(*tokens.shape, 11)

    found = measured(LanguageModeling(lambda encoding: Uniform(), "none"), Data())
    assert found["test/loss"] == pytest.approx(math.log(11), abs=1e-6)
    assert found["test/perplexity"] == pytest.approx(11, abs=1e-4)


def test_lengths_that_the_network_refuses_are_told_and_left_out(capsys):
    ours = task("learned", max_length=8)
    found = measured(ours, Data(4, 12, 16))
    assert sorted(found) == [
        "test/loss", "test/loss_4", "test/loss_last_quarter", "test/loss_last_quarter_4", "test/perplexity"
    ]  # fmt: skip
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert [line[:33] for line in lines] == ["test at 12: left out: 'learned' h", "test at 16: left out: 'learned' h"]
    with pytest.raises(ValueError, match="'learned' has 4 positions, got 8 tokens"):
        measured(task("learned", max_length=4), Data(4))


def test_packed_documents_are_as_if_alone():
    ours = task("fire").eval()
    tokens, targets = windows(8, 1)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    with torch.no_grad():
        packed, counted, _ = ours.losses((tokens, targets, ids))
        alone = [ours.losses((tokens[:, part], targets[:, part]))[0] for part in (slice(0, 3), slice(3, 8))]
        joined, _, _ = ours.losses((tokens, targets))
    assert counted.sum() == 8
    assert torch.allclose(packed, torch.cat(alone, dim=1), atol=1e-6)
    assert not torch.allclose(packed, joined, atol=1e-3)


def test_predictions_are_the_losses_of_windows():
    ours = task()
    tokens, targets = windows(8, 3, [(1, 2)])
    loader = DataLoader(TensorDataset(tokens, targets), batch_size=3)
    (batch,) = trainer().predict(ours, loader)
    with torch.no_grad():
        logits = ours.eval()(tokens)
    wanted = [F.cross_entropy(logits[number], targets[number]).item() for number in range(3)]
    assert batch["loss"].tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tokens, targets: (tokens + 5, targets), "tokens must be from 0 to 10, got 15"),
        (lambda tokens, targets: (tokens, targets + 5), r"has 11 tokens, and the data has targets from \d to 15; give"),
        (lambda tokens, targets: (tokens, targets - 20), r"the data has targets from -\d+ to -10"),
        (
            lambda tokens, targets: (tokens, targets[:, 1:]),
            r"logits \(2, 8, 11\) for targets \(2, 7\), expected \(2, 7,",
        ),
    ],
)
def test_a_batch_that_does_not_fit(change, message):
    tokens, targets = windows(8, 3)
    tokens[0, 0] = targets[2, 1] = 10
    with pytest.raises(ValueError, match=message):
        task().check_batch(change(tokens, targets))


def test_a_window_longer_than_a_learned_table_is_refused():
    ours = task("learned", max_length=8)
    ours.check_batch(windows(8, 2))
    with pytest.raises(ValueError, match="'learned' has 8 positions, got 9 tokens"):
        ours.check_batch(windows(9, 2))
    with pytest.raises(ValueError, match="no table of a sequence is made longer"):
        ours.prepare_for_size(9)


def test_sizes_are_lengths():
    assert task().size_of(windows(8, 2)) == 8


class Copies(nn.Module):
    """Says that the next token is the present one, or for a decoder that of the question."""

    def forward(self, first, tokens=None):
        tokens = first if tokens is None else first[:, : tokens.shape[1]]
        return 5.0 * F.one_hot(tokens, 11).float()


class Answers(LightningDataModule):
    test_lengths = [3]

    def __init__(self, source):
        super().__init__()
        self.source = source

    def test_dataloader(self):
        tokens = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        own, other = tokens.clone(), tokens.clone()
        own[0] = torch.tensor([IGNORED, 2, 3])
        own[1] = torch.tensor([IGNORED, 5, 5])
        other[:, 0] = 0
        inputs = (tokens, torch.zeros_like(tokens)) if self.source else (tokens,)
        return [DataLoader(TensorDataset(*inputs, targets), batch_size=2) for targets in (own, other)]


@pytest.mark.parametrize("source", [False, True])
def test_an_answer_is_right_in_every_token_or_not(source):
    ours = SequenceToSequence(lambda encoding: Copies(), "none")
    found = measured(ours, Answers(source))
    # Three answers in batches of two: a mean of the batches would be 0.75.
    assert found["test/exact_match"] == pytest.approx(2 / 3)
    assert found["test/exact_match_3"] == 0
    right, wrong = math.log(1 + 10 * math.exp(-5)), 5 + math.log(1 + 10 * math.exp(-5))
    assert found["test/loss"] == pytest.approx((6 * right + wrong) / 7, abs=1e-5)
    assert found["test/loss_3"] == pytest.approx((6 * right + 3 * wrong) / 9, abs=1e-5)
    batches = trainer().predict(ours, Answers(source).test_dataloader()[0])
    assert torch.cat([batch["exact_match"] for batch in batches]).tolist() == [1, 0, 1]


def test_right_predictions_are_what_greedy_generation_gives():
    ours = task("rope", SequenceToSequence).eval()
    question = torch.randint(11, (6, 4), generator=torch.Generator().manual_seed(1))
    tokens = question
    with torch.no_grad():
        for _ in range(3):
            tokens = torch.cat((tokens, ours(tokens)[:, -1:].argmax(-1)), dim=1)
        targets = tokens[:, 1:].clone()
        targets[:, :3] = IGNORED
        targets[:3, 4] = (targets[:3, 4] + 1) % 11  # not what is generated
        value, weight = ours.scores((tokens[:, :-1], targets))["exact_match"]
    assert (value.item(), weight.item()) == (0.5, 6)
