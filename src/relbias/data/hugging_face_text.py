"""Texts of Hugging Face data sets, in the tokens of a trained tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relbias._extras import extra
from relbias.data.parts import NAMES
from relbias.data.text import Text

with extra("text"):
    import datasets
    from tokenizers import Tokenizer

_ROWS = 1000  # tokenized at once


class HuggingFaceText(Text):
    """The rows of a data set of Hugging Face's, each a document, tokenized by a tokenizer of theirs.

    Data set and tokenizer are read from this machine where the names are paths, else fetched from the hub once. Empty
    rows are left out.

    Args:
        path: of the data set, as in `datasets.load_dataset`: a name on the hub, a folder, or a kind of file such as
            "text".
        tokenizer: a file tokenizer.json, or a name on the hub, such as gpt2.
        name: of the data set's configuration, such as wikitext-103-raw-v1.
        column: that holds the text.
        splits: the names of the splits for training, validation and test.
        data_files: the files, as in `datasets.load_dataset`, where `path` is a kind of file.
        end_token: the token that ends each document, such as <|endoftext|>; None for none.
        length: as in :class:`~relbias.data.text.Text`, as are the others.
        batch_size: see there.
        test_lengths: see there.
        packed: see there.
        num_workers: see there.
        fingerprint: see there.

    Raises:
        ValueError: an argument out of its range.
    """

    def __init__(
        self,
        path: str,
        tokenizer: str,
        name: str | None = None,
        column: str = "text",
        splits: tuple[str, str, str] = ("train", "validation", "test"),
        data_files: dict[str, str] | None = None,
        end_token: str | None = None,
        length: int = 64,
        batch_size: int = 16,
        test_lengths: Sequence[int] = (),
        packed: bool = False,
        num_workers: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__(length, batch_size, test_lengths, packed, num_workers, fingerprint)
        self.path = path
        self.tokenizer = tokenizer
        self.name = name
        self.column = column
        self.splits = tuple(splits)
        self.data_files = data_files
        self.end_token = end_token

    @property
    def source(self) -> str:
        return self.path if self.name is None else f"{self.path} {self.name}"

    def prepare_data(self) -> None:
        """Fetches what is not on this machine yet, in one process."""
        self._load()
        self._tokenizer()

    def _load(self) -> Any:
        try:
            return datasets.load_dataset(self.path, self.name, data_files=self.data_files)
        except Exception as error:  # theirs are of many kinds
            raise ValueError(f"cannot load the data set {self.source}: {' '.join(str(error).split())}") from error

    def _tokenizer(self) -> Tokenizer:
        try:
            if Path(self.tokenizer).is_file():
                return Tokenizer.from_file(self.tokenizer)
            return Tokenizer.from_pretrained(self.tokenizer)
        except Exception as error:  # plain exceptions, and those of the hub
            reason = " ".join(str(error).split())
            raise ValueError(f"cannot load the tokenizer {self.tokenizer}: {reason}") from error

    def read(self) -> dict[str, list[Tensor]]:
        rows, tokenizer = self._load(), self._tokenizer()
        end: list[int] = []
        if self.end_token is not None:
            number = tokenizer.token_to_id(self.end_token)
            if number is None:
                raise ValueError(
                    f"the tokenizer {self.tokenizer} has no token {self.end_token!r}; give another end_token"
                )
            end = [number]
        self.vocabulary = _Tokens(tokenizer)
        parts = {}
        for part, split in zip(NAMES, self.splits, strict=True):
            if split not in rows:
                raise ValueError(f"{self.source} has the splits {', '.join(rows)} and no {split!r}; give splits")
            if self.column not in rows[split].column_names:
                known = ", ".join(rows[split].column_names)
                raise ValueError(f"{self.source} has the columns {known} and no {self.column!r}; give column")
            parts[part] = list(self._documents(rows[split], tokenizer, end))
        return parts

    def _documents(self, rows: Any, tokenizer: Tokenizer, end: list[int]) -> Iterable[Tensor]:
        for batch in rows.select_columns([self.column]).iter(_ROWS):
            texts = [text for text in batch[self.column] if text]
            for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
                yield torch.tensor([*encoding.ids, *end], dtype=torch.int32)


class _Tokens:
    """The tokens of a tokenizer, as the vocabulary of a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> Tensor:
        return torch.tensor(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=torch.int32)

    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        return self._tokenizer.decode(torch.as_tensor(tokens).tolist(), skip_special_tokens=False)
