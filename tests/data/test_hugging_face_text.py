import datasets
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from relbias.data import HuggingFaceText

ROWS = {
    "train": "the cat sat on the mat\n\na dog\n",
    "validation": "a cat sat\na dog sat\n",
    "test": "the dog on a mat\n",
}
WORDS = ["[UNK]", "[END]", "the", "cat", "sat", "on", "mat", "a", "dog"]


@pytest.fixture
def local(tmp_path, monkeypatch):
    """A folder with a text file for each split, and a tokenizer of its words."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "data"
    folder.mkdir()
    for split, text in ROWS.items():
        (folder / f"{split}.txt").write_text(text * 3)
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return {"path": str(folder), "tokenizer": str(tmp_path / "tokenizer.json")}


def test_rows_are_documents_in_the_tokens_of_the_tokenizer(local):
    data = HuggingFaceText(**local, length=4, end_token="[END]", packed=True)
    data.prepare_data()
    data.setup()
    for part, split in (("train", "train"), ("val", "validation"), ("test", "test")):
        rows = [row.split() for row in (ROWS[split] * 3).split("\n") if row]
        wanted = [WORDS.index(word) for row in rows for word in (*row, "[END]")]
        assert getattr(data, part).tokens.tolist() == wanted
        numbers = [number for number, row in enumerate(rows) for _ in range(len(row) + 1)]
        assert getattr(data, part).documents.tolist() == numbers
    assert len(data.vocabulary) == len(WORDS)
    assert data.vocabulary.decode(data.vocabulary.encode("a cat")) == "a cat"
    tokens, targets, documents = next(iter(data.test_dataloader_at(6)))
    assert tokens.shape == targets.shape == documents.shape == (tokens.shape[0], 6)


def test_without_an_end_the_rows_are_one_text(local):
    data = HuggingFaceText(**local, length=4)
    data.setup()
    words = [WORDS[token] for token in data.val.tokens.tolist()]
    assert words == (ROWS["validation"] * 3).split()
    assert len(next(iter(data.train_dataloader()))) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "no-such-folder-or-name/here"}, "cannot load the data set no-such-folder-or-name/here: "),
        ({"tokenizer": "/no/such/tokenizer"}, "cannot load the tokenizer /no/such/tokenizer: "),
        ({"column": "body"}, "has the columns text and no 'body'; give column"),
        ({"splits": ("train", "dev", "test")}, "has the splits train, validation, test and no 'dev'; give splits"),
        ({"end_token": "</s>"}, "has no token '</s>'; give another end_token"),
        ({"length": 100}, "the train part of .* has 24 tokens, and a window of 100"),
    ],
)
def test_what_does_not_fit_is_refused(options, message, local, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=message) as caught:
        HuggingFaceText(**{**local, **options}).setup()
    assert "\n" not in str(caught.value)
