import numpy as np
import pytest
import torch

from relbias.data import Algorithmic
from relbias.data.algorithmic import END, PLUS, SEPARATOR, problems
from relbias.data.windows import IGNORED


def solved(rule, question):
    """The answer by Python's own arithmetic, a list of digits."""
    if rule == "copy":
        return question
    if rule == "reverse":
        return question[::-1]
    if rule == "parity":
        return [sum(question) % 2]
    plus = question.index(PLUS)
    first, second = (int("".join(map(str, part))) for part in (question[:plus], question[plus + 1 :]))
    return [int(digit) for digit in reversed(f"{first + second:0{plus + 1}d}")]


@pytest.mark.parametrize("rule", ["copy", "reverse", "parity", "addition"])
@pytest.mark.parametrize("length", [1, 2, 7, 25])
def test_answers_are_right(rule, length):
    questions, answers = problems(rule, length, 40, np.random.default_rng(0))
    assert len(questions) == len(answers) == 40
    for question, answer in zip(questions.tolist(), answers.tolist(), strict=True):
        assert answer == solved(rule, question)
    digits = questions[questions != PLUS]
    if length > 2:
        assert set(digits.tolist()) == set(range(2 if rule == "parity" else 10))


@pytest.mark.parametrize("rule", ["copy", "reverse", "parity", "addition"])
def test_batches_ask_and_answer(rule):
    data = Algorithmic(rule, length=5, num_test=8)
    tokens, targets = next(iter(data.test_dataloader_at(3)))
    assert tokens.shape == targets.shape
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        place = row.index(SEPARATOR)
        answer = solved(rule, row[:place])
        assert row == [*row[:place], SEPARATOR, *answer]
        assert wanted == [IGNORED] * place + [*answer, END]
    assert data.size_of((tokens, targets)) == 3


@pytest.mark.parametrize("rule", ["reverse", "addition"])
def test_the_question_can_be_a_tensor_of_its_own(rule):
    question, tokens, targets = next(iter(Algorithmic(rule, num_test=8, source=True).test_dataloader_at(4)))
    joined, all_targets = next(iter(Algorithmic(rule, num_test=8).test_dataloader_at(4)))
    assert torch.equal(torch.cat((question, tokens), dim=1), joined)
    assert torch.equal(targets, all_targets[:, question.shape[1] :])
    assert Algorithmic(rule, source=True).size_of((question, tokens, targets)) == 4


def test_training_lengths_are_all_up_to_the_longest_and_one_for_a_batch():
    torch.manual_seed(0)
    data = Algorithmic("copy", length=6, batch_size=3, batches_per_epoch=300)
    loader = data.train_dataloader()
    batches = list(loader)
    assert len(batches) == 300
    counts = np.bincount([data.size_of(batch) for batch in batches], minlength=7)
    assert counts[0] == 0
    assert counts[1:].min() > 30  # of 50 expected; five standard deviations are 32
    assert {len(tokens) for tokens, _ in batches} == {3}
    again = list(loader)
    assert all(torch.equal(one[0], other[0]) for one, other in zip(batches, again, strict=True))
    loader.sampler.set_epoch(1)
    assert [tokens.tolist() for tokens, _ in loader] != [tokens.tolist() for tokens, _ in batches]
    torch.manual_seed(1)
    assert [tokens.tolist() for tokens, _ in data.train_dataloader()] != [tokens.tolist() for tokens, _ in batches]


def test_the_test_is_always_the_same_and_not_the_validation():
    tests = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        data = Algorithmic("copy", length=9, num_test=50, batch_size=20, test_lengths=[12])
        first, second = ([batch[0] for batch in loader] for loader in data.test_dataloader())
        assert [len(tokens) for tokens in first] == [20, 20, 10]
        assert data.size_of(next(iter(data.test_dataloader()[1]))) == 12
        tests.append(torch.cat(first))
        assert second[0].shape[1] == 2 * 12 + 1
    assert torch.equal(*tests)
    rows = {tuple(row) for row in tests[0].tolist()}
    assert len(rows) == 50
    val = [tuple(row) for tokens, _ in data.val_dataloader() for row in tokens.tolist()]
    assert len(val) == 50
    assert not rows & set(val)
    predicted = torch.cat([tokens for tokens, _ in data.predict_dataloader()])
    assert torch.equal(predicted, tests[0])


class Task:
    class network:
        num_tokens = 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "sort"}, "rule is 'sort', expected one of copy, reverse, addition, parity"),
        ({"length": 0}, "length must be"),
        ({"num_test": 0}, "num_test must be"),
        ({"batches_per_epoch": 0}, "batches_per_epoch must be"),
        ({"test_lengths": [30, 25]}, "expected lengths that increase"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Algorithmic(**{"rule": "copy", **options})


def test_a_network_with_fewer_tokens_is_refused():
    with pytest.raises(ValueError, match="Algorithmic has 13 different tokens and the network's num_tokens is 12"):
        Algorithmic("copy").adapt_to(Task())
