"""Uses of variables whose names are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from relbias.data.order import draws
from relbias.data.source.batches import Encoded, batch_of
from relbias.data.source.file_windows import FileWindow
from relbias.data.source.findings import Suspicion
from relbias.data.source.functions import FileFunction
from relbias.data.source.samples import with_hidden
from relbias.data.variable_uses import VariableUses
from relbias.relations.base import check_size

_READS = 4
"""A function stands once in an epoch for so many of its reads, about as many as are hidden at a time."""


class MaskedVariables(VariableUses):
    """Functions in which uses of variables are hidden, for the choice of the right one of the function's variables.

    In an evaluation one use is hidden at a time: each place that reads one of the function's own variables is a sample.
    In the training several are, each a question of its own: their number is drawn evenly from 1 to `max_hidden` or to
    half of the function's reads (rounded up), whichever is less, anew in each epoch, as are the places. A function with
    R reads comes R / 4 times in an epoch (rounded), at least once. Without a Trainer a loop of one's own calls
    `loader.sampler.set_epoch(epoch)` before each epoch.

    Batches are those of :class:`~relbias.data.variable_uses.VariableUses`, as are the other arguments. Hidden names
    have no words and no number in `variables`, and no edge tells them: they have none of the types next use, last
    write, same name and calls. Of Q hidden names batches have

    - hidden: (Q, 2) int64, the row of the batch and the token in it.
    - target: (Q,) int64, the number of the right variable in `variables`.
    - is_self: (Q,) bool, whether its name is self.

    Args:
        max_hidden: the most uses of a function that are hidden at once, in the training.

    Example:
        >>> data = MaskedVariables("absent")
        >>> data.setup()
        Traceback (most recent call last):
        ...
        ValueError: there is no file or folder absent; give a source file, or a folder of source files
    """

    threshold = 0.98  # what it finds, and what it suspects wrongly: the table in recipes/code/README.md

    def __init__(
        self,
        path: str | None = None,
        min_tokens: int = 8,
        max_tokens: int = 128,
        min_variables: int = 2,
        vocabulary_size: int = 2000,
        max_words: int = 4,
        max_hidden: int = 8,
        batch_size: int = 32,
        cache: str | None = None,
        num_workers: int = 0,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__(
            path,
            min_tokens,
            max_tokens,
            min_variables,
            vocabulary_size,
            max_words,
            batch_size,
            cache,
            num_workers,
            fingerprint,
        )
        check_size("max_hidden", max_hidden, 1)
        self.max_hidden = max_hidden

    def samples_of(self, part: str, functions: Sequence[FileFunction]) -> list[tuple[int, int]]:
        """As in the base class; in the training a function's first read, as often as the function comes."""
        if part != "train":
            return super().samples_of(part, functions)
        return [
            (number, function.own.reads[0])
            for number, function in enumerate(functions)
            for _ in range(max(1, round(len(function.own.reads) / _READS)))
        ]

    def rows(self, part: str, samples: Sequence[int], sampler: DistributedSampler | None = None) -> dict[str, Tensor]:
        """The batch of some samples of a part, with random places if there is a sampler."""
        asked: list[tuple[Encoded, list[int]]] = []
        for sample in samples:
            encoded, token = self.sample(part, sample)
            asked.append((encoded, [token] if sampler is None else self._places(encoded, sampler, sample)))
        return questions(asked)

    def file_batches(
        self, windows: Iterable[FileWindow]
    ) -> Iterator[tuple[dict[str, Tensor], list[tuple[FileWindow, int]]]]:
        """Batches of a user's functions, in which each use to be judged is hidden once.

        Args:
            windows: from :meth:`~relbias.data.variable_uses.VariableUses.windows`.

        Returns:
            Batches as those of a test, and for each row the window and the token in it that is hidden. `target` is the
            variable that stands there.
        """
        every = ((window, token) for window in windows for token in window.asked)
        while chosen := list(islice(every, self.batch_size)):
            yield questions([(window.encoded, [token]) for window, token in chosen]), chosen

    def suspicion(self, row: tuple[FileWindow, int], answer: dict[str, Any]) -> Suspicion | None:
        """The likeliest variable for a hidden use; None if the window has no other use of what stands there."""
        window, token = row
        numbers = window.encoded.function.own.numbers
        if (numbers == numbers[token]).sum() < 2:
            return None
        return Suspicion(window, token, answer["prediction"], answer["probability"])

    def _places(self, encoded: Encoded, sampler: DistributedSampler, sample: int) -> list[int]:
        reads = encoded.function.own.reads
        number, *order = draws(sampler, torch.tensor([sample]), 1 + len(reads))[0].tolist()
        count = 1 + int(number * min(self.max_hidden, (len(reads) + 1) // 2))
        return sorted(sorted(reads, key=dict(zip(reads, order, strict=True)).__getitem__)[:count])


def questions(asked: Sequence[tuple[Encoded, Sequence[int]]]) -> dict[str, Tensor]:
    """A batch of functions with hidden names.

    Args:
        asked: the functions, and the tokens of each that are hidden.

    Returns:
        As :class:`MaskedVariables` describes it; its questions in the order of the functions and tokens.
    """
    every = [(row, encoded, token) for row, (encoded, tokens) in enumerate(asked) for token in tokens]
    return {
        **batch_of([with_hidden(encoded, tokens) for encoded, tokens in asked]),
        "hidden": torch.tensor([(row, token) for row, _, token in every]).view(-1, 2),
        "target": torch.tensor([int(encoded.function.own.numbers[token]) for _, encoded, token in every]),
        "is_self": torch.tensor([bool(encoded.is_self[token]) for _, encoded, token in every]),
    }
