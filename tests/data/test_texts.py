import hashlib
import pydoc_data.topics

import pytest
import torch
import torch.utils.data

from relbias.data import PydocTopics, TextFiles
from relbias.data.parts import split_documents, split_text
from relbias.data.vocabulary import Bytes, Characters

WORDS = "the quick brown fox jumps over the lazy dog; "


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 40)
    return path


def texts(data, part):
    return data.vocabulary.decode(getattr(data, part).tokens)


def test_characters_come_back_and_others_are_unknown():
    vocabulary = Characters(["abc", "é\n😀"])
    assert len(vocabulary) == 7
    assert vocabulary.decode(vocabulary.encode("a\n😀é")) == "a\n😀é"
    assert vocabulary.encode("aZb~\U0010ffff").tolist() == [2, 0, 3, 0, 0]
    assert vocabulary.encode("").tolist() == []


def test_bytes_come_back():
    text = "naïve 😀\n"
    tokens = Bytes().encode(text)
    assert tokens.tolist() == list(text.encode())
    assert Bytes().decode(tokens) == text


def test_a_file_is_parted_in_its_order(file):
    data = TextFiles(str(file), length=8)
    data.setup()
    whole = WORDS * 40
    assert texts(data, "train") + texts(data, "val") + texts(data, "test") == whole
    assert [len(data.train), len(data.val), len(data.test)] == [1620, 90, 90]


def test_a_character_that_the_training_part_lacks_is_unknown(tmp_path):
    (tmp_path / "text.txt").write_text("ab" * 100 + "Z" * 20)
    data = TextFiles(str(tmp_path / "text.txt"), length=4)
    data.setup()
    assert len(data.vocabulary) == 3
    assert data.test.tokens.tolist() == [0] * 11
    other = TextFiles(str(tmp_path / "text.txt"), length=4, tokens="bytes")
    other.setup()
    assert other.test.tokens.tolist() == [ord("Z")] * 11


def test_files_are_parted_whole_and_by_their_names_alone(tmp_path):
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text(f"{number:>2}" * 60)
    (tmp_path / "other.md").write_text("no")
    data = TextFiles(str(tmp_path), length=8, packed=True, tokens="bytes")
    data.setup()
    order = sorted((f"{number}.txt" for number in range(12)), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    assert texts(data, "test") == f"{order[0].removesuffix('.txt'):>2}" * 60
    assert texts(data, "val") == f"{order[1].removesuffix('.txt'):>2}" * 60
    assert len(data.train) == 10 * 120
    assert data.train.documents.bincount().tolist() == [120] * 10
    tokens, targets, documents = next(iter(data.val_dataloader()))
    assert tokens.shape == targets.shape == documents.shape


def test_parts_of_documents_are_never_empty():
    names = sorted("abcd", key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    for sizes, expected in (([2, 2, 4], [1, 1, 1]), ([1, 1, 1, 100], [2, 1, 1]), ([9, 1, 5, 80], [1, 2, 1])):
        parts = split_documents({name: "x" * size for name, size in zip(names, sizes, strict=False)})
        assert [len(parts[name]) for name in ("test", "val", "train")] == expected
    for sizes in ([100, 1, 1], [1, 100, 1], [2, 2, 3]):
        message = f"would take {sum(sizes[:2])} of {sum(sizes)} characters \\({names[0]}, {names[1]}\\); put the text"
        with pytest.raises(ValueError, match=message):
            split_documents(dict(zip(names, ["x" * size for size in sizes], strict=False)))


def test_text_without_remainder():
    assert {name: len(parts[0]) for name, parts in split_text("x" * 101).items()} == {"train": 91, "val": 5, "test": 5}


def test_topics_of_python_are_parted_whole():
    data = PydocTopics(length=64, test_lengths=[1024])
    data.setup()
    total = sum(map(len, pydoc_data.topics.topics.values()))
    sizes = [len(data.train), len(data.val), len(data.test)]
    assert sum(sizes) == total
    assert all(0.05 <= size / total < 0.15 for size in sizes[1:])
    assert data.found["fingerprint"].startswith(f"{total} tokens, sha256 ")
    test = [text for text in pydoc_data.topics.topics.values() if text in texts(data, "test")]
    assert sum(map(len, test)) == len(data.test)
    assert not [text for text in test if text in texts(data, "train")]


def test_an_epoch_has_every_token_once_in_windows_that_move(file):
    torch.manual_seed(0)
    data = TextFiles(str(file), length=32, batch_size=4)
    data.setup()
    loader, firsts = data.train_dataloader(), []
    for epoch in (0, 1, 0):
        loader.sampler.set_epoch(epoch)
        tokens = torch.cat([tokens for tokens, _ in loader])
        order = torch.argsort(torch.tensor(list(loader.sampler)))
        text = data.vocabulary.decode(tokens[order].flatten())
        assert len(text) == 49 * 32
        firsts.append((WORDS * 40).index(text))
        assert firsts[-1] < 32 + 45  # the text repeats after 45
    assert firsts[0] == firsts[2] != firsts[1]


def test_the_seed_changes_the_order_and_the_windows(file):
    batches = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        data = TextFiles(str(file), length=32)
        data.setup()
        batches.append(next(iter(data.train_dataloader()))[0])
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def test_validation_has_every_token_once(file):
    data = TextFiles(str(file), length=8)
    data.setup()
    targets = torch.cat([targets for _, targets in data.val_dataloader()]).flatten()
    assert torch.equal(targets, data.val.tokens[1:89].long())


def test_test_lengths_are_the_last_test_dataloaders(file):
    data = TextFiles(str(file), length=8, test_lengths=[4, 16])
    data.setup()
    assert [next(iter(loader))[0].shape[1] for loader in data.test_dataloader()] == [8, 4, 16]
    assert next(iter(data.predict_dataloader()))[0].shape[1] == 8
    assert next(iter(data.test_dataloader_at(40)))[0].shape[1] == 40


def test_a_text_that_has_changed_is_refused(file):
    data = TextFiles(str(file), length=8)
    assert data.found == {}
    data.setup()
    (fingerprint,) = data.found.values()
    assert fingerprint.startswith("1800 tokens, sha256 ")
    TextFiles(str(file), length=8, fingerprint=fingerprint).setup()
    file.write_text((WORDS * 40).replace("fox", "cat", 1))
    with pytest.raises(ValueError, match=f"expected are {fingerprint}: the text or its tokens have changed"):
        TextFiles(str(file), length=8, fingerprint=fingerprint).setup()


class Task:
    class network:
        num_tokens = 20


def test_a_network_with_fewer_tokens_is_refused(file):
    data = TextFiles(str(file), length=8)
    data.adapt_to(Task())
    with pytest.raises(
        ValueError, match=r"has 29 different tokens and the network's num_tokens is 20; give --model.in"
    ):
        data.setup()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "text.txt is empty; give a text"),
        (
            "x" * 100,
            {"length": 5},
            "the val part of .*text.txt has 5 tokens, and a window of 5 with its targets takes 6",
        ),
        ("x" * 400, {"length": 10, "test_lengths": [30]}, "the test part of .* has 20 tokens, and a window of 30"),
    ],
)
def test_texts_that_are_too_short(text, options, message, tmp_path):
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        TextFiles(str(tmp_path / "text.txt"), **options).setup()


def test_a_length_that_the_text_does_not_have(file):
    data = TextFiles(str(file), length=8)
    data.setup()
    with pytest.raises(ValueError, match=r"the test part of .* has 90 tokens, and a window of 90"):
        data.test_dataloader_at(90)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ValueError, match=r"a\.txt is no text in UTF-8"):
        TextFiles(str(tmp_path)).setup()
    with pytest.raises(ValueError, match=r"has no files \*\.md; give --data.init_args.pattern"):
        TextFiles(str(tmp_path), pattern="*.md").setup()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"num_workers": -1}, "num_workers must be"),
        ({"tokens": "words"}, "tokens is 'words', expected 'characters' or 'bytes'"),
        ({"test_lengths": [32, 16]}, r"test_lengths is \[32, 16\], expected lengths that increase"),
        ({"test_lengths": [128, 128]}, "expected lengths that increase"),
        ({"test_lengths": [64]}, "test_lengths has 64, the length of the training itself"),
        ({"test_lengths": [0]}, "a length in test_lengths must be"),
        ({"test_lengths": "128"}, "test_lengths is '128', expected a list of lengths in tokens"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TextFiles("text.txt", **options)
