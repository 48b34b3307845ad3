"""The functions of a user's files, those that are too long in windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from relbias.data.source.batches import Encoded
from relbias.data.source.functions import FileFunction
from relbias.data.source.own_variables import OwnVariables, Visible, own_variables
from relbias.data.source.parsed import Function, ParsedSource
from relbias.data.source.user_files import read_files


@dataclass(frozen=True, eq=False)
class WholeFunction:
    """What windows of one function share.

    Args:
        source: the tokens of the function.
        own: its variables.
    """

    source: ParsedSource
    own: OwnVariables

    @cached_property
    def visible(self) -> Visible:
        """Which of the variables are visible where."""
        return Visible(self.source, self.own)


@dataclass(frozen=True, eq=False)
class FileWindow:
    """A function, or a part of a long one.

    Args:
        encoded: its tokens as numbers; `encoded.function` says the file and the name of the function.
        asked: the tokens of the window that are to be judged here: they read one of the function's own variables. No
            other window has the same.
        whole: the function.
        first: the place of the window's first token in it.
    """

    encoded: Encoded
    asked: tuple[int, ...]
    whole: WholeFunction
    first: int

    def place(self, token: int) -> tuple[int, int]:
        """The line (from 1) and the column (in characters, from 0) where a token of the window begins."""
        line, column = self.encoded.function.source.spans[token, :2].tolist()
        return line, column

    def visible(self, token: int) -> set[str]:
        """The names of the function's own variables that can stand at a token of the window."""
        return {*self.whole.visible.at(self.first + token)}


@dataclass(frozen=True, eq=False)
class FileWindows:
    """What is to be judged in some files, and what is not.

    Args:
        windows: in the order of the files and of the functions in them.
        notices: lines: a problem of a file each, and at last the functions that are read in windows.
        num_files: how many were read.
    """

    windows: list[FileWindow]
    notices: list[str]
    num_files: int


def file_windows(
    paths: Sequence[str | Path], encode: Callable[[FileFunction], Encoded], max_tokens: int
) -> FileWindows:
    """The functions of files, and of the files in folders, with two variables of their own or more.

    A function of more than `max_tokens` tokens is read in windows of so many, which begin half a window after one
    another. Each use of a variable is judged in the window in whose middle it is.

    Args:
        paths: see :func:`~relbias.data.source.user_files.read_files`.
        encode: turns a function into numbers.
        max_tokens: the most of a window.
    """
    sources, notices = read_files(paths)
    windows: list[FileWindow] = []
    long: list[str] = []
    for file, parsed in sources.items():
        for function in parsed.functions:
            source = parsed.part(function.first, function.last)
            whole = WholeFunction(source, own_variables(source))
            found = [*_windows(file, function, whole, encode, max_tokens)]
            windows += found
            if len(source.tokens) > max_tokens and found:
                long.append(f"{file}:{int(source.spans[0, 0])} {function.name} ({len(source.tokens)} tokens)")
    if long:
        more = f" and {len(long) - _MOST} more" if len(long) > _MOST else ""
        notices.append(f"read in windows of {max_tokens} tokens, being longer: {', '.join(long[:_MOST])}{more}")
    return FileWindows(windows, notices, len(sources))


_MOST = 3


def _windows(
    file: str,
    function: Function,
    whole: WholeFunction,
    encode: Callable[[FileFunction], Encoded],
    max_tokens: int,
) -> Iterator[FileWindow]:
    own, count = whole.own, len(whole.source.tokens)
    half = max(1, max_tokens // 2)
    starts = [*range(0, max(1, count - max_tokens), half), max(0, count - max_tokens)]
    starts = sorted(set(starts))
    # Between two windows, the tokens up to the middle of what they share belong to the first.
    ends = [(first + max_tokens + second) // 2 for first, second in pairwise(starts)]
    for start, low, high in zip(starts, [0, *ends], [*ends, count], strict=True):
        last = min(start + max_tokens, count)
        numbers = own.numbers[start:last]
        reads = tuple(token - start for token in own.reads if start <= token < last)
        source = whole.source.part(start, last) if count > max_tokens else whole.source
        part = OwnVariables(own.names, numbers, reads)
        can_choose = len(np.unique(numbers[numbers >= 0])) > 1
        asked = tuple(token for token in reads if low <= token + start < high) if can_choose else ()
        if asked:
            encoded = encode(FileFunction(file, function.name, function.first + start, source, part))
            yield FileWindow(encoded, asked, whole, start)
