from collections import Counter

import pytest
import torch
from tests.data.code_files import reparsed, write_code

from relbias.data import MisusedVariables
from relbias.data.source.batches import Encoded, batch_of
from relbias.data.source.functions import FileFunction
from relbias.data.source.own_variables import own_variables
from relbias.data.source.python import parse_python
from relbias.data.source.samples import as_it_is

SAME = ("words", "lengths", "parents", "node_types", "node_of_token", "edges", "variables")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("code")
    data = MisusedVariables(str(write_code(root / "files")), cache=str(root / "cache"), batch_size=3)
    data.setup()
    return data


def row_of(data, encoded, names):
    """The function as a row, parsed from its file with other names."""
    text = (data.path / encoded.function.file).read_text()
    functions = [function.first for function in parse_python(text).functions]
    source = reparsed(text, functions.index(encoded.function.first), names)
    function = FileFunction("", "", 0, source, own_variables(source))
    return as_it_is(Encoded.of(function, data.vocabulary, data.types))


def loaders(data):
    yield "train", data.train_dataloader()
    yield "val", data.val_dataloader()
    yield "test", data.test_dataloader()


def test_every_field_of_a_batch(data):
    wrong = {True: 0, False: 0}
    for part, loader in loaders(data):
        order = list(loader.sampler) if part == "train" else list(loader.dataset)
        for place, batch in enumerate(loader):
            samples = order[3 * place : 3 * place + 3]
            rows = []
            for row, sample in enumerate(samples):
                encoded, token = data.sample(part, sample)
                own, tokens = encoded.function.own, encoded.function.source.tokens
                reads = [each in own.reads for each in range(batch["words"].shape[1])]
                assert batch["reads"][row].tolist() == reads
                wrong[bool(batch["wrong"][row] >= 0)] += 1
                if batch["wrong"][row] < 0:
                    assert batch["target"][row] == batch["wrong"][row] == -1
                    rows.append(row_of(data, encoded, {}))
                    continue
                assert batch["wrong"][row] == token
                assert own.names[batch["target"][row]] == tokens[token]
                name = own.names[batch["variables"][row, token]]
                assert name != tokens[token]
                assert name in encoded.visible.at(token)
                rows.append(row_of(data, encoded, {token: name}))
            expected = batch_of(rows)
            assert [name for name in SAME if not batch[name].equal(expected[name])] == []
            assert {name: tensor.dtype for name, tensor in batch.items()} == {
                **dict.fromkeys(batch, torch.int64),
                "edges": torch.int32,
                "reads": torch.bool,
            }
    assert min(wrong.values()) > 20


def test_an_evaluation_is_the_same_each_time_and_a_training_is_not(data):
    def seen(loader):
        return [batch["variables"].tolist() for batch in loader]

    assert seen(data.test_dataloader()) == seen(data.test_dataloader())
    torch.manual_seed(0)
    first, second, third = data.train_dataloader(), data.train_dataloader(), data.train_dataloader()
    third.sampler.set_epoch(1)
    assert seen(first) == seen(second) != seen(third)


def test_half_are_wrong_and_every_other_visible_name_is_as_likely(data):
    sampler = data.train_dataloader().sampler
    number, sample = max((len(data.sample("train", n)[0].visible.at(data.sample("train", n)[1])), n) for n in range(20))
    encoded, token = data.sample("train", sample)
    names = Counter()
    for epoch in range(600):
        sampler.set_epoch(epoch)
        batch = data.rows("train", [sample], sampler)
        names[encoded.function.own.names[batch["variables"][0, token]]] += 1
    right = encoded.function.source.tokens[token]
    assert set(names) == set(encoded.visible.at(token))
    assert abs(names.pop(right) - 300) < 5 * 12.3  # five standard deviations
    assert number > 2
    share = 300 / (number - 1)
    assert all(abs(count - share) < 5 * share**0.5 for count in names.values())


def test_a_use_without_another_name_stays(tmp_path):
    text = "def f(x):\n    y = x\n    return [z for z in x]\n"
    root = write_code(
        tmp_path / "code",
        {"train": [text], "val": [text.replace("y", "w")], "test": ["def f(x):\n    return x, [y for y in x]\n"]},
    )
    data = MisusedVariables(str(root), cache=str(tmp_path / "cache"))
    data.setup()
    (batch,) = data.test_dataloader()
    encoded, _ = data.sample("test", 0)
    assert encoded.function.own.names == ("x", "y")
    alone = [token for _, token in data.samples["test"] if len(encoded.visible.at(token)) == 1]
    assert len(alone) == 2
    assert not set(batch["wrong"].tolist()) & set(alone)
