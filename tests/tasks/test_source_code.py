"""The tasks on source code against loops over tokens and variables."""

from __future__ import annotations

import math

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader

from relbias.tasks import MaskedVariable, VariableMisuse
from relbias.tasks.source_code import of_variables


class _Words(nn.Module):
    """The vectors of tokens are those of their first words; padding stands out."""

    def __init__(self, encoding):
        super().__init__()
        self.encoding = encoding
        self.dim = 4
        self.table = nn.Embedding(10, 4)

    def forward(self, words, *, parents, node_of_token, node_types, edges, key_padding_mask):
        return self.table(words[..., 0]).masked_fill(key_padding_mask[..., None], 50.0)


def batch():
    """Two functions: of five tokens, two of which are hidden, and of three, one hidden."""
    return {
        "words": torch.tensor([[[1], [2], [0], [3], [0]], [[4], [0], [5], [0], [0]]]),
        "lengths": torch.tensor([5, 3]),
        "parents": torch.tensor([[-1, 0], [-1, -1]]),
        "node_of_token": torch.tensor([[0, 1, 1, 0, 0], [0, 0, 0, -1, -1]]),
        "node_types": torch.tensor([[1, 2], [1, 0]]),
        "edges": torch.zeros(2, 5, 5, dtype=torch.int64),
        "variables": torch.tensor([[0, 1, -1, 0, -1], [0, -1, 1, -1, -1]]),
        "hidden": torch.tensor([[0, 2], [0, 4], [1, 1]]),
        "target": torch.tensor([0, 1, 1]),
        "is_self": torch.tensor([False, True, False]),
    }


def misused():
    """Three functions: the second is right; in the others a use is wrong."""
    return {
        "words": torch.tensor([[[1], [2], [3], [4]], [[5], [6], [7], [0]], [[8], [9], [1], [2]]]),
        "lengths": torch.tensor([4, 3, 4]),
        "parents": torch.full((3, 1), -1),
        "node_of_token": torch.zeros(3, 4, dtype=torch.int64),
        "node_types": torch.zeros(3, 1, dtype=torch.int64),
        "edges": torch.zeros(3, 4, 4, dtype=torch.int64),
        "variables": torch.tensor([[0, 1, 0, 2], [0, 1, 1, -1], [1, 0, 1, 2]]),
        "reads": torch.tensor([[False, False, True, True], [False, True, True, False], [True, False, True, True]]),
        "wrong": torch.tensor([2, -1, 0]),
        "target": torch.tensor([1, -1, 2]),
    }


def make(task, seed=0):
    torch.manual_seed(seed)
    return task(_Words, "none").double()


def trainer():
    return Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def scores(head, query, keys):
    return [math.exp(float(torch.dot(head.query(query), head.key(key)).detach() / 2)) for key in keys]


def expected_masked(task, values):
    """For each hidden name the probabilities of the variables, by a loop."""
    found = []
    for item, place in values["hidden"].tolist():
        tokens = task.network.table(values["words"][item, :, 0])
        weights = scores(task.pointer, tokens[place], tokens)
        sums = {}
        for variable, weight in zip(values["variables"][item].tolist(), weights, strict=True):
            if variable >= 0:
                sums[variable] = sums.get(variable, 0.0) + weight
        total = sum(sums.values())
        found.append([sums.get(variable, 0.0) / total for variable in range(2)])
    return torch.tensor(found, dtype=torch.float64)


def test_probabilities_of_variables_are_sums_over_their_occurrences():
    task, values = make(MaskedVariable), batch()
    values["words"][1, 3:] = 9  # padding, which is no occurrence
    expected = expected_masked(task, values)
    torch.testing.assert_close(task.log_probabilities(values).exp().double(), expected, rtol=1e-5, atol=1e-6)
    loss = -expected.log()[torch.arange(3), values["target"]].mean()
    torch.testing.assert_close(task.training_step(values, 0).double(), loss, rtol=1e-5, atol=1e-6)


def test_the_gradient_reaches_everything_and_is_finite_where_a_variable_is_absent():
    task, values = make(MaskedVariable), batch()
    values["variables"][0] = torch.tensor([0, 3, -1, 0, -1])
    values["target"][1] = 3
    task.training_step(values, 0).backward()
    for name, parameter in task.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # A bias of the keys moves all the scores of a query alike.
        assert name == "pointer.key.bias" or parameter.grad.abs().max() > 0, name


def test_accuracies_are_over_all_hidden_names_and_over_those_that_are_not_self():
    for seed in range(4):
        task, values = make(MaskedVariable, seed), batch()
        right = expected_masked(task, values).argmax(1) == values["target"]
        [found] = trainer().test(task, DataLoader([values, values], batch_size=None), verbose=False)
        assert found["test/accuracy"] == pytest.approx(right.double().mean().item())
        others = right[~values["is_self"]].double().mean().item()
        assert found["test/accuracy_without_self"] == pytest.approx(others)
        [found] = trainer().validate(task, DataLoader([values], batch_size=None), verbose=False)
        assert found["val/accuracy"] == pytest.approx(right.double().mean().item())
        loss = -expected_masked(task, values).log()[torch.arange(3), values["target"]].mean()
        assert found["val/loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_every_hidden_name_and_every_function_counts_as_much_in_the_loss():
    task, values = make(MaskedVariable), batch()
    few = {**values, **{name: values[name][2:] for name in ("hidden", "target", "is_self")}}
    losses = -expected_masked(task, values).log()[torch.arange(3), values["target"]]
    [found] = trainer().validate(task, DataLoader([values, few], batch_size=None), verbose=False)
    assert found["val/loss"] == pytest.approx(float(losses[[0, 1, 2, 2]].mean()), rel=1e-5)
    task, values = make(VariableMisuse), misused()
    few = {name: each[1:2] for name, each in values.items()}
    with torch.no_grad():
        expected = (3 * float(task.losses(values)[0]) + float(task.losses(few)[0])) / 4
    [found] = trainer().validate(task, DataLoader([values, few], batch_size=None), verbose=False)
    assert found["val/loss"] == pytest.approx(expected, rel=1e-5)


def test_a_batch_of_self_alone_counts_in_the_first_accuracy_only():
    task, values = make(MaskedVariable), batch()
    alone = {**values, "is_self": torch.ones(3, dtype=torch.bool)}
    [found] = trainer().test(task, DataLoader([alone, values], batch_size=None), verbose=False)
    right = expected_masked(task, values).argmax(1) == values["target"]
    assert found["test/accuracy_without_self"] == pytest.approx(right[[0, 2]].double().mean().item())


def test_predictions_of_hidden_names():
    task, values = make(MaskedVariable), batch()
    expected, found = expected_masked(task, values), task.predict_step(values, 0)
    assert found["prediction"].tolist() == expected.argmax(1).tolist()
    torch.testing.assert_close(found["probability"].double(), expected.max(1).values, rtol=1e-5, atol=1e-6)
    own = expected[torch.arange(3), values["target"]]
    torch.testing.assert_close(found["label_probability"].double(), own, rtol=1e-5, atol=1e-6)


def expected_misuse(task, values):
    """For each function the probabilities of nothing and of each token, and of each variable at the wrong use."""
    places, repairs = [], []
    for item, length in enumerate(values["lengths"].tolist()):
        tokens = task.network.table(values["words"][item, :, 0])
        logits = [float(task.nothing.linear(tokens[:length].mean(0)))]
        logits += [
            float(task.location(token)) if read else -math.inf
            for token, read in zip(tokens, values["reads"][item].tolist(), strict=True)
        ]
        places.append(torch.tensor(logits).double().softmax(0))
        wrong, variables = int(values["wrong"][item]), values["variables"][item].tolist()
        if wrong < 0:
            repairs.append(None)
            continue
        weights = scores(task.repair, tokens[wrong], tokens)
        sums = [0.0, 0.0, 0.0]
        for variable, weight in zip(variables, weights, strict=True):
            if variable >= 0 and variable != variables[wrong]:
                sums[variable] += weight
        repairs.append(torch.tensor(sums).double() / sum(sums))
    return places, repairs


def test_the_loss_of_places_and_repairs():
    task, values = make(VariableMisuse), misused()
    places, repairs = expected_misuse(task, values)
    loss = 0.0
    for item in range(3):
        wrong, target = int(values["wrong"][item]), int(values["target"][item])
        loss -= float(places[item][wrong + 1].log())
        if wrong >= 0:
            loss -= float(repairs[item][target].log())
    assert float(task.training_step(values, 0)) == pytest.approx(loss / 3, rel=1e-4)


def test_the_shares_of_what_is_clean_located_and_repaired():
    seen = set()
    for seed in range(30):
        task, values = make(VariableMisuse, seed), misused()
        places, repairs = expected_misuse(task, values)
        right = [int(place.argmax()) - 1 == int(wrong) for place, wrong in zip(places, values["wrong"], strict=True)]
        fixed = [right[item] and int(repairs[item].argmax()) == int(values["target"][item]) for item in (0, 2)]
        expected = {"clean": float(right[1]), "located": (right[0] + right[2]) / 2, "repaired": sum(fixed) / 2}
        _, flags = task.losses(values)
        assert {name: flag.double().mean().item() for name, flag in flags.items()} == pytest.approx(expected)
        seen.add(tuple(expected.values()))
        if seed == 0:
            [found] = trainer().test(task, DataLoader([values, values], batch_size=None), verbose=False)
            assert found == pytest.approx({f"test/{name}": value for name, value in expected.items()})
    assert len(seen) > 3


def test_functions_without_a_mistake_alone():
    task, values = make(VariableMisuse), misused()
    values["wrong"], values["target"] = torch.full((3,), -1), torch.full((3,), -1)
    loss, flags = task.losses(values)
    places, _ = expected_misuse(task, values)
    assert float(loss) == pytest.approx(-sum(float(place[0].log()) for place in places) / 3, rel=1e-4)
    assert [len(flags[name]) for name in ("clean", "located", "repaired")] == [3, 0, 0]


def test_predictions_of_misuse_never_suggest_the_variable_that_stands_there():
    for seed in range(10):
        task, values = make(VariableMisuse, seed), misused()
        found = task.predict_step(values, 0)
        places, _ = expected_misuse(task, values)
        assert found["found"].tolist() == [int(place.argmax()) - 1 for place in places]
        assert found["place"].tolist() == [int(place[1:].argmax()) for place in places]
        for item in range(3):
            place = int(found["place"][item])
            assert values["reads"][item, place]
            assert found["suggestion"][item] in values["variables"][item]
            assert found["suggestion"][item] != values["variables"][item, place]
            assert float(found["place_probability"][item]) == pytest.approx(float(places[item][place + 1]), rel=1e-4)


@pytest.mark.parametrize(("task", "values"), [(MaskedVariable, batch()), (VariableMisuse, misused())])
def test_a_batch_is_checked(task, values):
    class Wide(_Words):
        def forward(self, words, **arguments):
            return super().forward(words, **arguments)[..., :3]

    make(task).check_batch(values)
    with pytest.raises(ValueError, match=r"expected \(\d, \d, 4\), a vector for each token"):
        task(Wide, "none").check_batch(values)
    with pytest.raises(ValueError, match="Linear does not say the size of its vectors"):
        task(lambda encoding: nn.Linear(2, 2), "none")


def test_a_hidden_name_that_occurs_nowhere_else_is_refused():
    values = batch()
    values["variables"][1, 2] = -1
    with pytest.raises(ValueError, match="occurs nowhere else"):
        make(MaskedVariable).check_batch(values)


def test_variables_without_any_token():
    assert of_variables(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.int64)).shape[0] == 0
