"""What the data modules of texts have in common."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from relbias.data.lengths import check_lengths
from relbias.data.order import shuffled
from relbias.data.parts import NAMES
from relbias.data.windows import Part, in_order, moved, test_starts, training_starts
from relbias.relations.base import check_size


class Text(LightningDataModule):
    """Windows of a text: batches of tokens (B, length) and of the tokens that follow them (B, length), int64.

    Training windows lie one after the other, moved in each epoch by a random number of tokens. Validation windows lie
    one after the other. Test windows, of any length, are such that the same tokens are predicted in their last
    quarters, see :func:`~relbias.data.windows.test_starts`; so their mean loss is over the same tokens too, each with a
    short, two middle and a long context, but for those near the beginning.

    A subclass defines `read`.

    Args:
        length: tokens of a window.
        batch_size: windows in a batch of the training.
        test_lengths: other lengths of windows that are tested too, increasing.
        packed: whether documents are told apart: batches then have a third tensor, the number of the document of each
            token, (B, length) int64, and the target of a document's last token counts in no loss.
        num_workers: processes that load batches.
        fingerprint: of the text that is expected; None for the one that is found. `relbias fit` keeps in the run folder
            what it found, so that a text that has changed is noticed.

    Attributes:
        vocabulary: with the methods `encode(text)` and `decode(tokens)`, once set up; its length is the number of
            tokens that there are.
        fingerprint: the number of tokens and a hash of them; the one expected before :meth:`setup`.

    Raises:
        ValueError: an argument out of its range.
    """

    vocabulary: Any

    def __init__(
        self,
        length: int = 64,
        batch_size: int = 16,
        test_lengths: Sequence[int] = (),
        packed: bool = False,
        num_workers: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__()
        check_size("length", length, 1)
        check_size("batch_size", batch_size, 1)
        check_size("num_workers", num_workers, 0)
        check_lengths(test_lengths, length)
        self.length = length
        self.batch_size = batch_size
        self.test_lengths = list(test_lengths)
        self.packed = packed
        self.num_workers = num_workers
        self.fingerprint = fingerprint
        self._num_tokens: int | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """What messages call the text."""

    @abstractmethod
    def read(self) -> dict[str, list[Tensor]]:
        """The tokens of the documents of each part, train, val and test, (T,) int32 each; sets `vocabulary`."""

    @property
    def found(self) -> dict[str, Any]:
        """The arguments that :meth:`setup` found, for the configuration of a run."""
        return {} if self.fingerprint is None else {"fingerprint": self.fingerprint}

    def adapt_to(self, task: Any) -> None:
        """Takes from a task how many tokens its network knows, where its `network` has `num_tokens`."""
        self._num_tokens = getattr(getattr(task, "network", None), "num_tokens", None)

    def setup(self, stage: str | None = None) -> None:
        """Reads the text.

        Raises:
            ValueError: there is none, it is not the one expected, a part is shorter than a window, or the network knows
                fewer tokens.
        """
        documents = self.read()
        hashed = hashlib.sha256()
        for name in NAMES:
            for document in documents[name]:
                hashed.update(f"{name} {len(document)}:".encode() + document.numpy().tobytes())
        self.train, self.val, self.test = (Part(documents[name], self.packed) for name in NAMES)
        total = len(self.train) + len(self.val) + len(self.test)
        if not total:
            raise ValueError(f"{self.source} is empty; give a text")
        found = f"{total} tokens, sha256 {hashed.hexdigest()[:16]}"
        if self.fingerprint not in (None, found):
            raise ValueError(
                f"{self.source} has {found}, expected are {self.fingerprint}: the text or its tokens have changed; "
                "give the one of the run, or --data.init_args.fingerprint null for a new run"
            )
        needed = {"train": self.length, "val": self.length, "test": max(self.length, *self.test_lengths, 0)}
        for name, length in needed.items():
            self._check(name, length)
        if self._num_tokens is not None and self._num_tokens < len(self.vocabulary):
            raise ValueError(
                f"{self.source} has {len(self.vocabulary)} different tokens and the network's num_tokens is "
                f"{self._num_tokens}; give --model.init_args.network.init_args.num_tokens {len(self.vocabulary)}"
            )
        self.fingerprint = found

    def _check(self, name: str, length: int) -> None:
        tokens = len(getattr(self, name))
        if tokens <= length:
            raise ValueError(
                f"the {name} part of {self.source} has {tokens} tokens, and a window of {length} with its targets "
                f"takes {length + 1}; give a longer text, or smaller lengths"
            )

    def train_dataloader(self) -> DataLoader:
        """Training batches in the order of :func:`~relbias.data.order.shuffled`."""
        starts: Any = training_starts(len(self.train), self.length)
        sampler = shuffled(starts, self.trainer)
        return DataLoader(
            dataset=starts,
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=partial(moved, self.train, self.length, sampler),
        )

    def val_dataloader(self) -> DataLoader:
        """Windows of the validation part, one after the other."""
        starts = range(0, len(self.val) - self.length, self.length)
        return in_order(self.val, self.length, starts, self.batch_size, self.num_workers)

    def test_dataloader(self) -> list[DataLoader]:
        """Windows of the test part, and those of each of `test_lengths`."""
        return [self.test_dataloader_at(length) for length in (self.length, *self.test_lengths)]

    def test_dataloader_at(self, length: int) -> DataLoader:
        """Windows of the test part of another length, with the same tokens as targets of their last quarters.

        Args:
            length: tokens of a window. Up to the longest of the test, the targets are the same; beyond it fewer.

        Returns:
            Batches of tokens (B, length) and targets (B, length).

        Raises:
            ValueError: the test part is shorter than a window.
        """
        check_size("length", length, 1)
        self._check("test", length)
        starts = test_starts(len(self.test), length, max(self.length, *self.test_lengths, 0))
        return in_order(self.test, length, starts, self.batch_size, self.num_workers)

    def predict_dataloader(self) -> DataLoader:
        """Windows of the test part."""
        return self.test_dataloader_at(self.length)
