"""Uses of variables in a user's files that look wrong to a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from relbias.data.source.file_windows import FileWindow, FileWindows


class Finding(NamedTuple):
    """A use of a variable that looks wrong.

    Args:
        file: its path, as it was given or found in a folder that was given.
        line: from 1.
        column: in characters, from 1.
        function: its name.
        name: what stands there.
        suggestion: the variable that should stand there.
        probability: that it is so, as the network says.

    Example:
        >>> print(Finding("a.py", 3, 12, "clamp", "low", "high", 0.981))
        a.py:3:12: low in clamp should perhaps be high (0.98)
    """

    file: str
    line: int
    column: int
    function: str
    name: str
    suggestion: str
    probability: float

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.name} in {self.function} should perhaps be {self.suggestion} ({self.probability:.2f})"


class Suspicion(NamedTuple):
    """What a network says of a row of a batch.

    Args:
        window: the function, or the part of it.
        token: of the window, a use of a variable.
        variable: the number of the one that should stand there.
        probability: that it is so.
    """

    window: FileWindow
    token: int
    variable: int
    probability: float

    def finding(self) -> Finding | None:
        """What is told; None if the variable stands there already, or is not visible there."""
        function = self.window.encoded.function
        name, suggestion = function.source.tokens[self.token], function.own.names[self.variable]
        if suggestion == name or suggestion not in self.window.visible(self.token):
            return None
        line, column = self.window.place(self.token)
        return Finding(function.file, line, column + 1, function.name, name, suggestion, self.probability)


class Judge(Protocol):
    """Data that asks a network about functions."""

    threshold: float
    """The least probability of what is told."""

    def file_batches(self, windows: Iterable[FileWindow]) -> Iterator[tuple[dict[str, Tensor], Sequence[Any]]]:
        """Batches for the task's `predict_step`, and what the rows of each are about."""
        ...

    def suspicion(self, row: Any, answer: dict[str, Any]) -> Suspicion | None:
        """What an answer says; None for nothing.

        Args:
            row: what the row of the batch is about.
            answer: what `predict_step` returned for it, a number for each name.
        """
        ...


class SourceInputs:
    """A user's files as batches of questions, and what a network finds in them.

    Args:
        files: what is to be judged in them.
        judge: asks.

    Attributes:
        notices: a line for each thing that could not be read, and one for the functions that are read in windows.
        columns: of what is found.
    """

    columns = Finding._fields

    def __init__(self, files: FileWindows, judge: Judge) -> None:
        self.files, self.judge, self.notices = files, judge, files.notices
        # Batches of similar lengths. The order is that of the files again when they are judged.
        self._windows = sorted(files.windows, key=lambda window: len(window.encoded))
        self._rows: list[Any] = []

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """The batches."""
        self._rows = []
        for batch, rows in self.judge.file_batches(self._windows):
            self._rows += rows
            yield batch

    def findings(self, answers: Sequence[dict[str, Tensor]], threshold: float | None = None) -> list[Finding]:
        """What looks wrong, in the order of the files and of the places in them.

        Args:
            answers: what the task's `predict_step` returned for each batch, in order.
            threshold: the least probability; None for that of the data.
        """
        least = self.judge.threshold if threshold is None else threshold
        said = [self.judge.suspicion(*each) for each in zip(self._rows, _by_row(answers), strict=True)]
        found = [each.finding() for each in said if each is not None and each.probability >= least]
        files: dict[str, int] = {}
        for window in self.files.windows:
            files.setdefault(window.encoded.function.file, len(files))
        return sorted(
            (each for each in found if each is not None), key=lambda each: (files[each.file], each.line, each.column)
        )

    def summary(self, findings: Sequence[Finding]) -> str:
        """How much was judged, and how much looks wrong, in one line."""
        uses = sum(len(window.asked) for window in self.files.windows)
        files = f"{self.files.num_files} file{'' if self.files.num_files == 1 else 's'}"
        return f"{len(findings)} of {uses} uses of variables look wrong, in {files}"


def _by_row(answers: Sequence[dict[str, Tensor]]) -> Iterator[dict[str, Any]]:
    for batch in answers:
        columns = {name: values.tolist() for name, values in batch.items()}
        yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
