import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from tests.data.code_files import SOURCES, reparsed, write_code
from tqdm import tqdm

from relbias.data import MaskedVariables
from relbias.data.source.edges import EDGE_TYPES, program_edges
from relbias.data.source.functions import LeftOut
from relbias.data.source.parsed import KINDS
from relbias.data.source.python import parse_python
from relbias.data.source.vocabulary import split_identifier

T = len(EDGE_TYPES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_code(tmp_path_factory.mktemp("code") / "files")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def make(folder, cache):
    def make(**options):
        data = MaskedVariables(**{"path": str(folder), "cache": cache, "batch_size": 3, **options})
        data.setup()
        return data

    return make


def words_of(vocabulary, token, kind, width):
    """The numbers of one token's words, one after the other."""
    parts = split_identifier(token)[:width] if KINDS[kind] == "name" else [token]
    numbers = [vocabulary.words.index(part) + 6 if part in vocabulary.words else kind + 1 for part in parts]
    return numbers + [0] * (width - len(numbers))


def matrix_of(source, n):
    """The sets of edge types of a program, edge by edge, in a matrix of n tokens."""
    sets = [[0] * n for _ in range(n)]
    edge_index, types = program_edges(source)
    for i, j, kind in zip(*edge_index.tolist(), types.tolist(), strict=True):
        sets[i][j] |= 2**kind
        sets[j][i] |= 2 ** (T + kind)
    return sets


def in_file(data, encoded):
    """The text of a function's file, and the place of the function in it."""
    text = (data.path / encoded.function.file).read_text()
    functions = parse_python(text).functions
    return text, [function.first for function in functions].index(encoded.function.first)


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_every_field_of_a_batch(make, part):
    data = make(max_words=2)
    loader = {"train": data.train_dataloader, "val": data.val_dataloader, "test": data.test_dataloader}[part]()
    order = list(loader.sampler) if part == "train" else list(loader.dataset)
    types = Counter(name for one in data.functions["train"] for name in one.function.source.node_types)
    types = sorted(types, key=lambda name: (-types[name], name))
    assert len(loader) > 1
    for place, batch in enumerate(loader):
        n, v = batch["words"].shape[1], batch["parents"].shape[1]
        for row, sample in enumerate(order[3 * place : 3 * place + 3]):
            encoded, token = data.sample(part, sample)
            text, function = in_file(data, encoded)
            parsed = parse_python(text)
            source = parsed.part(parsed.functions[function].first, parsed.functions[function].last)
            items, tokens = batch["hidden"].unbind(1)
            hidden = tokens[items == row].tolist()
            assert set(hidden) <= set(encoded.function.own.reads)
            assert part == "train" or hidden == [token]
            count = len(source.tokens)
            assert batch["lengths"][row] == count
            kinds = source.kinds.tolist()
            words = [words_of(data.vocabulary, source.tokens[t], kinds[t], 2) for t in range(count)]
            for each in hidden:
                words[each] = [0, 0]
            assert batch["words"][row].tolist() == words + [[0, 0]] * (n - count)
            assert batch["node_of_token"][row].tolist() == source.node_of_token.tolist() + [-1] * (n - count)
            parents = source.parents.tolist()
            assert batch["parents"][row].tolist() == parents + [-1] * (v - len(parents))
            numbers = [types.index(name) + 1 if name in types else 0 for name in source.node_types]
            assert batch["node_types"][row].tolist() == numbers + [0] * (v - len(parents))
            names = encoded.function.own.names
            variables = [names.index(name) if name in names else -1 for name in source.tokens]
            of_function, all_variables = source.function_of_variable.tolist(), source.variable_of_token.tolist()
            for each, variable in enumerate(all_variables):
                if variable < 0 or of_function[variable] != 0:
                    variables[each] = -1
            asked = [(variables[each], source.tokens[each] == "self") for each in hidden]
            found = zip(batch["target"][items == row].tolist(), batch["is_self"][items == row].tolist(), strict=True)
            assert asked == list(found)
            for each in hidden:
                variables[each] = -1
            assert batch["variables"][row].tolist() == variables + [-1] * (n - count)
            # The same program with names that no variable has, parsed anew.
            changed = reparsed(text, function, {each: f"zyx{each}" for each in hidden})
            assert batch["edges"][row].tolist() == matrix_of(changed, n)
        assert {name: tensor.dtype for name, tensor in batch.items()} == {
            **dict.fromkeys(batch, torch.int64),
            "edges": torch.int32,
            "is_self": torch.bool,
        }


def test_every_read_is_asked_about_once_in_an_evaluation(make):
    data = make()
    found = []
    for batch in data.test_dataloader():
        assert batch["hidden"][:, 0].tolist() == list(range(len(batch["words"])))
        for words, (_, hidden), length in zip(batch["words"], batch["hidden"], batch["lengths"], strict=True):
            assert words[:length].any(-1).logical_not().nonzero() == hidden
            found.append((tuple(words[:length].flatten().tolist()), int(hidden)))
    expected = []
    for encoded in data.functions["test"]:
        for token in encoded.function.own.reads:
            words = torch.from_numpy(encoded.words.copy())
            words[token] = 0
            expected.append((tuple(words.flatten().tolist()), token))
    assert sorted(found) == sorted(expected)
    assert len(found) > 10


def test_the_uses_that_are_hidden_in_a_training(make):
    data = make(batch_size=1, max_hidden=3)
    loader = data.train_dataloader()
    often, hidden = Counter(), {}
    for epoch in range(60):
        loader.sampler.set_epoch(epoch)
        for batch, sample in zip(loader, list(loader.sampler), strict=True):
            number = data.samples["train"][sample][0]
            often[number] += 1
            hidden.setdefault(number, []).append(batch["hidden"][:, 1].tolist())
    for number, encoded in enumerate(data.functions["train"]):
        reads = encoded.function.own.reads
        assert often[number] == 60 * max(1, round(len(reads) / 4))
        assert all(len(tokens) == len(set(tokens)) for tokens in hidden[number])
        assert {len(tokens) for tokens in hidden[number]} == set(range(1, min(3, -(-len(reads) // 2)) + 1))
        assert {token for tokens in hidden[number] for token in tokens} == set(reads)
    number, most = often.most_common(1)[0]
    assert most > 60
    assert hidden[number][:: most // 60] != hidden[number][1 :: most // 60]  # each time other places in one epoch


def test_the_parts_are_of_other_files_and_no_function_comes_twice(tmp_path, cache):
    text = SOURCES["train"][0]
    again = {**SOURCES, "val": [*SOURCES["val"], text], "test": [*SOURCES["test"], text]}
    data = MaskedVariables(str(write_code(tmp_path / "code", again)), cache=cache)
    data.setup()
    files = {part: {one.function.file for one in found} for part, found in data.functions.items()}
    assert files["test"] == {"test_0.py", "test_1.py"}  # the first by its path has what others have too
    assert files["train"] == {"train_1.py"}
    assert files["val"] == {"val_0.py"}
    tokens = [one.function.source.tokens for found in data.functions.values() for one in found]
    assert len(tokens) == len(set(tokens)) == data.left_out.kept
    assert data.left_out.reasons["a second time"] == 6


def test_what_is_left_out_is_told_once(tmp_path, cache, capsys):
    root = write_code(tmp_path / "code")
    (root / "broken.py").write_text("x = (\n")
    (root / "gone.py").symlink_to(root / "nowhere.py")
    (root / "loop").symlink_to(root)
    (root / "empty.py").write_text("")
    (root / "nul.py").write_bytes(b"x = 1\0\n")
    many = ["    a = b", "    b = a"] * 3000
    (root / "long.py").write_text("\n".join(["def f(a, b):", *many]))
    (root / "short.py").write_text("def f(): x\n\n\ndef g(a):\n    return a")
    (root / "deep.py").write_text("x = " + "(" * 400 + ")" * 400)
    data = MaskedVariables(str(root), cache=cache)
    data.setup()
    data.setup()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        f"{root}: 9 of 12 functions, from 4 of 10 files; left out: 1 too short, 1 too long, 1 with too few variables"
    )
    named = {line.split(":")[0] for line in lines[1:]}
    assert named == {"broken.py", "gone.py (left out)", "nul.py", "deep.py"}


@pytest.mark.parametrize("missing", ["train", "val", "test"])
def test_a_part_without_functions_is_refused(tmp_path, cache, missing):
    root = write_code(tmp_path / "code", {part: texts for part, texts in SOURCES.items() if part != missing})
    with pytest.raises(
        ValueError, match=rf"the {missing} part of .* has no function of 8 to 128 tokens .*give more files"
    ):
        MaskedVariables(str(root), cache=cache).setup()


def test_a_folder_without_python_is_refused(tmp_path, cache):
    (tmp_path / "notes.txt").write_text("no code")
    with pytest.raises(ValueError, match=r"the train part of .* has no function"):
        MaskedVariables(str(tmp_path), cache=cache).setup()


def test_files_that_changed_are_noticed(folder, make, tmp_path, cache):
    found = make().found["fingerprint"]
    assert found.startswith("9 functions, sha256 ")
    assert make(fingerprint=found).found == {"fingerprint": found}
    changed = {**SOURCES, "val": [SOURCES["val"][0].replace("text", "content")]}
    first, second = SOURCES["train"]
    moved = {**SOURCES, "train": [first], "val": [second, *SOURCES["val"]]}  # the same functions in the same order
    for name, sources in (("changed", changed), ("moved", moved)):
        root = write_code(tmp_path / name, sources)
        with pytest.raises(ValueError, match="the files have changed; give those of the run, or"):
            MaskedVariables(str(root), cache=cache, fingerprint=found).setup()


def test_a_damaged_cache_is_made_anew(make, tmp_path):
    first = make(cache=str(tmp_path / "own"))
    files = sorted((tmp_path / "own").rglob("*.npz"))
    assert len(files) == 4
    for number, file in enumerate(files):
        data = bytearray(file.read_bytes())
        data[len(data) // 2 :] = data[len(data) // 2 :: -1] if number % 2 else b""
        file.write_bytes(data)
    again = make(cache=str(tmp_path / "own"))
    assert again.fingerprint == first.fingerprint
    for one, other in zip(first.test_dataloader(), again.test_dataloader(), strict=True):
        assert all(one[name].equal(other[name]) for name in one)


def test_the_same_seed_and_epoch_give_the_same_batches(make):
    def hidden(seed, epoch):
        torch.manual_seed(seed)
        loader = make().train_dataloader()
        loader.sampler.set_epoch(epoch)
        return [batch["hidden"].tolist() for batch in loader]

    assert hidden(1, 3) == hidden(1, 3)
    assert hidden(1, 3) != hidden(1, 4)
    assert hidden(1, 3) != hidden(2, 3)


def test_the_shares_of_processes_are_those_of_one(make):
    data = make()
    torch.manual_seed(0)
    whole = set(range(len(data.samples["train"])))
    shares = []
    for rank in range(2):
        connector = SimpleNamespace(_loaded_checkpoint={})
        data.trainer = SimpleNamespace(
            world_size=2, global_rank=rank, current_epoch=0, is_global_zero=not rank, _checkpoint_connector=connector
        )
        shares.append(set(data.train_dataloader().sampler))
    assert shares[0] | shares[1] == whole
    assert len(shares[0]) == len(shares[1]) == -(-len(whole) // 2)


def test_workers_give_the_same(make):
    alone, with_worker = make(), make(num_workers=1)
    for one, other in zip(alone.val_dataloader(), with_worker.val_dataloader(), strict=True):
        assert all(one[name].equal(other[name]) for name in one)


def test_batches_hold_functions_of_similar_lengths(make):
    data = make(batch_size=2, max_tokens=90)
    padded = sum(batch["words"].shape[0] * batch["words"].shape[1] for batch in data.train_dataloader())
    own = sum(int(batch["lengths"].sum()) for batch in data.train_dataloader())
    assert padded < 1.12 * own
    lengths = [int(length) for batch in data.test_dataloader() for length in batch["lengths"]]
    assert lengths == sorted(lengths)
    assert lengths != [len(data.functions["test"][number]) for number, _ in data.samples["test"]]


def test_a_network_that_knows_fewer_words_is_refused(make):
    size = len(make().vocabulary)
    data = MaskedVariables(str(make().path), cache=str(make().cache))
    data.adapt_to(SimpleNamespace(network=SimpleNamespace(num_words=size - 1)))
    with pytest.raises(ValueError, match=f"needs a network with num_words {size}, and it is {size - 1}; give"):
        data.setup()
    types = len(make().types)
    data.adapt_to(SimpleNamespace(network=SimpleNamespace(num_words=size, node_types=types - 1)))
    with pytest.raises(ValueError, match=f"node_types {types}, and it is {types - 1}; give"):
        data.setup()
    data.adapt_to(SimpleNamespace(network=SimpleNamespace(num_words=size, node_types=None, edge_types=2 * T - 1)))
    with pytest.raises(ValueError, match=r"network with edge_types 12, and it is 11; give .*init_args\.edge_types 12"):
        data.setup()
    data.adapt_to(SimpleNamespace(network=SimpleNamespace(num_words=size, node_types=None, edge_types=None)))
    data.setup()
    assert len(make(vocabulary_size=30).vocabulary) == 30


def test_the_shortest_and_the_longest_that_are_taken(make):
    lengths = [len(one) for found in make(min_tokens=1).functions.values() for one in found]
    data = make(min_tokens=min(lengths), max_tokens=max(lengths))
    assert data.left_out.kept == len(lengths)
    fewer = make(min_tokens=min(lengths) + 1).left_out
    assert fewer.reasons["too short"] == lengths.count(min(lengths))
    fewer = make(max_tokens=max(lengths) - 1).left_out
    assert fewer.reasons["too long"] == lengths.count(max(lengths))


@pytest.mark.parametrize(("count", "last"), [(10, "file 9"), (11, "and 1 more files with problems")])
def test_ten_problems_are_told(count, last):
    told = str(LeftOut((1, 1), 1, {}, tuple(f"file {number}" for number in range(count)))).splitlines()
    assert (len(told), told[-1]) == (1 + count, last)


def test_the_words_are_those_of_the_training_part(make):
    data = make()
    train = {
        word
        for one in data.functions["train"]
        for name in one.function.source.tokens
        for word in split_identifier(name)
    }
    assert {"clamp", "setdefault"} < set(data.vocabulary.words)
    assert "encoding" not in data.vocabulary.words
    assert {word for word in data.vocabulary.words if word.islower()} <= train


def test_a_trainer_runs_it(folder, cache):
    class Counts(LightningModule):
        def training_step(self, batch, _):
            self.seen = getattr(self, "seen", 0) + len(batch["words"])

        def configure_optimizers(self):
            return None

    module, data = Counts(), MaskedVariables(str(folder), cache=cache, batch_size=4)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary"), False)
    Trainer(accelerator="cpu", max_epochs=2, limit_val_batches=0, **quiet).fit(module, data)
    assert module.seen == 2 * len(data.samples["train"])


def test_the_standard_library_is_the_default(tmp_path, monkeypatch, capsys):
    library = write_code(tmp_path / "library")
    for name in ("test", "tests", "idlelib", "idle_test", "lib2to3", "turtledemo", "site-packages", "dist-packages"):
        write_code(library / name, {"train": ["def f(x, y):\n    return x + y"]})
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(library) if name == "stdlib" else None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = MaskedVariables()
    data.setup()
    assert data.left_out.kept == 9
    assert len(list((tmp_path / "cache" / "relbias" / "source").rglob("*.npz"))) == 4
    version = ".".join(map(str, sys.version_info[:3]))
    assert capsys.readouterr().err.startswith(f"the library of Python {version}: 9 of 9 functions, from 4 of 4 files")


def test_progress_is_shown(folder, tmp_path, monkeypatch):
    bars = []

    class Bar(tqdm):
        def __init__(self, **options):
            assert options.pop("disable") is None  # hidden where there is no terminal
            super().__init__(**options, disable=False)
            bars.append(self)

    monkeypatch.setattr("relbias.data.variable_uses.tqdm", Bar)
    MaskedVariables(str(folder), cache=str(tmp_path)).setup()
    assert [(bar.n, bar.total) for bar in bars] == [(4, 4)]


def test_a_user_without_a_place_for_the_cache(tmp_path, monkeypatch, folder):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    data = MaskedVariables(str(folder))
    with pytest.warns(UserWarning, match="nothing is kept in"):
        data.setup()
    assert data.left_out.kept == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_tokens": 0}, "min_tokens must be an integer of at least 1, got 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "max_tokens must be an integer of at least 9, got 8"),
        ({"min_variables": 1}, "min_variables must be an integer of at least 2, got 1"),
        ({"vocabulary_size": 5}, "vocabulary_size must be an integer of at least 6, got 5"),
        ({"max_words": 0}, "max_words must be an integer of at least 1, got 0"),
        ({"max_hidden": 0}, "max_hidden must be an integer of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"num_workers": -1}, "num_workers must be an integer of at least 0, got -1"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        MaskedVariables("code", **arguments)


def test_batches_before_setup_are_refused():
    with pytest.raises(ValueError, match="call setup"):
        MaskedVariables("code").test_dataloader()
