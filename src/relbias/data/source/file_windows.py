"""The functions of a user's files, those that are too long in windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from relbias.data.source.batches import Encoded
from relbias.data.source.folder import parse_folder
from relbias.data.source.functions import FileFunction
from relbias.data.source.own_variables import OwnVariables, own_variables
from relbias.data.source.parsed import Function, ParsedSource


@dataclass(frozen=True, eq=False)
class FileWindow:
    """A function, or a part of a long one.

    Args:
        encoded: its tokens as numbers; `encoded.function` says the file and the name of the function.
        asked: the tokens of the window that are to be judged here: they read one of the function's own variables. No
            other window has the same.
    """

    encoded: Encoded
    asked: tuple[int, ...]

    def place(self, token: int) -> tuple[int, int]:
        """The line (from 1) and the column (in characters, from 0) where a token of the window begins."""
        line, column = self.encoded.function.source.spans[token, :2].tolist()
        return line, column


@dataclass(frozen=True, eq=False)
class FileWindows:
    """What is to be judged in some files, and what is not.

    Args:
        windows: in the order of the files and of the functions in them.
        notices: a line each: the problems of the files, and the functions that are read in windows.
    """

    windows: list[FileWindow]
    notices: list[str]


def file_windows(path: str | Path, encode: Callable[[FileFunction], Encoded], max_tokens: int) -> FileWindows:
    """The functions of a file, or of the files in a folder, with two variables of their own or more.

    A function of more than `max_tokens` tokens is read in windows of so many, which begin half a window after one
    another. Each use of a variable is judged in the window in whose middle it is.

    Args:
        path: the file or the folder.
        encode: turns a function into numbers.
        max_tokens: the most of a window.

    Raises:
        ValueError: as in :func:`~relbias.data.source.folder.parse_folder`.
    """
    folder = parse_folder(path, ("python",))
    windows: list[FileWindow] = []
    notices = str(folder).splitlines()[1:]
    for file, parsed in folder.sources.items():
        for function in parsed.functions:
            whole = parsed.part(function.first, function.last)
            own = own_variables(whole)
            if len(own.names) < 2:
                continue
            count = function.last - function.first
            if count > max_tokens:
                line = int(whole.spans[0, 0])
                notices.append(
                    f"{file}: line {line}: the function {function.name} has {count} tokens and is read in windows of "
                    f"{max_tokens}"
                )
            windows += _windows(file, function, parsed, own, encode, max_tokens)
    return FileWindows(windows, notices)


def _windows(
    file: str,
    function: Function,
    parsed: ParsedSource,
    own: OwnVariables,
    encode: Callable[[FileFunction], Encoded],
    max_tokens: int,
) -> Iterator[FileWindow]:
    count = function.last - function.first
    half = max(1, max_tokens // 2)
    starts = [*range(0, max(1, count - max_tokens), half), max(0, count - max_tokens)]
    starts = sorted(set(starts))
    # Between two windows, the tokens up to the middle of what they share belong to the first.
    ends = [(first + max_tokens + second) // 2 for first, second in pairwise(starts)]
    for start, low, high in zip(starts, [0, *ends], [*ends, count], strict=True):
        last = min(start + max_tokens, count)
        numbers = own.numbers[start:last]
        reads = tuple(token - start for token in own.reads if start <= token < last)
        source = parsed.part(function.first + start, function.first + last)
        part = OwnVariables(own.names, numbers, reads)
        can_choose = len(np.unique(numbers[numbers >= 0])) > 1
        asked = tuple(token for token in reads if low <= token + start < high) if can_choose else ()
        if asked:
            yield FileWindow(encode(FileFunction(file, function.name, function.first + start, source, part)), asked)
