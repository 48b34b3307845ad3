"""Data that knows the words of a training, in which it reads other files too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from torch import Tensor

from relbias.data.source.batches import Encoded
from relbias.data.source.file_windows import FileWindow, FileWindows, file_windows
from relbias.data.source.findings import SourceInputs, Suspicion
from relbias.data.source.node_types import NodeTypes
from relbias.data.source.vocabulary import SourceVocabulary


class SourceReader(LightningDataModule):
    """Data of source code that reads a user's files in the words of its training, which each checkpoint keeps.

    A subclass sets `vocabulary` and `types` in its `setup`, and defines `file_batches` and `suspicion`.

    Args:
        max_tokens: the most of a function; longer ones of a user are read in windows.
        max_words: how many words of a name are kept.

    Attributes:
        vocabulary: of the training part, once set up or loaded with a checkpoint; None before.
        types: of the nodes, likewise.
        threshold: the least probability of what is told about a user's files.
    """

    threshold: float

    def __init__(self, max_tokens: int, max_words: int) -> None:
        super().__init__()
        self.max_tokens, self.max_words = max_tokens, max_words
        self.vocabulary: SourceVocabulary | None = None
        self.types: NodeTypes | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """What messages call the files of the training."""

    @abstractmethod
    def file_batches(self, windows: Iterable[FileWindow]) -> Iterator[tuple[dict[str, Tensor], Sequence[Any]]]:
        """Batches of a user's functions, and what their rows are about."""

    @abstractmethod
    def suspicion(self, row: Any, answer: dict[str, Any]) -> Suspicion | None:
        """What the task's `predict_step` says of a row."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the words and the types of nodes, so that other files can be judged without these.

        Its keys are "words", "max_words" and "types".
        """
        if self.vocabulary is None or self.types is None:
            return {}
        return {"words": list(self.vocabulary.words), "max_words": self.max_words, "types": list(self.types.names)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the words and the types of nodes from a checkpoint.

        Raises:
            ValueError: others are known already.
        """
        if not state_dict:
            return
        known = self.state_dict()
        if known and known != state_dict:
            raise ValueError(f"the checkpoint has other words than {self.source}; give the files of its training")
        self.max_words = state_dict["max_words"]
        self.vocabulary = SourceVocabulary.of_words(state_dict["words"], self.max_words)
        self.types = NodeTypes.of_names(state_dict["types"])

    def windows(self, paths: Sequence[str | Path]) -> FileWindows:
        """The functions of a user's files, to be judged by a trained network.

        Args:
            paths: files and folders.

        Returns:
            As :func:`~relbias.data.source.file_windows.file_windows`; `file_batches` makes batches of them.

        Raises:
            ValueError: the data is neither set up nor loaded.
        """
        vocabulary, types = self.vocabulary, self.types
        if vocabulary is None or types is None:
            raise ValueError("the words are not known; call setup(), or load_state_dict() with that of a checkpoint")
        return file_windows(paths, lambda function: Encoded.of(function, vocabulary, types), self.max_tokens)

    def read_inputs(self, paths: Sequence[str | Path]) -> SourceInputs:
        """A user's files, as batches for the task's `predict_step`.

        Args:
            paths: files and folders. What cannot be read is among the `notices` of the result.

        Raises:
            ValueError: as for `windows`, or nothing can be read.
        """
        windows = self.windows(paths)
        if not windows.num_files:
            raise ValueError(f"there is nothing to read: {'; '.join(windows.notices)}")
        return SourceInputs(windows, self)
