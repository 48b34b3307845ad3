"""The functions of source files in parts for training, validation and test, each function once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from relbias.data.parts import NAMES
from relbias.data.source.folder import SourceFolder
from relbias.data.source.own_variables import OwnVariables, own_variables
from relbias.data.source.parsed import ParsedSource

TEST_SHARE, VAL_SHARE = 0.1, 0.1
"""Of all possible hashes of a file."""


@dataclass(frozen=True, eq=False)
class FileFunction:
    """A function of a file.

    Args:
        file: the file's path within its folder.
        name: of the function.
        first: its first token in the file.
        source: its tokens and its tree.
        own: its variables.
    """

    file: str
    name: str
    first: int
    source: ParsedSource
    own: OwnVariables


@dataclass(frozen=True)
class LeftOut:
    """How many functions were left out, by the reason, and what the files' problems were.

    Args:
        files: how many files have a function that is kept, and of how many.
        kept: functions.
        reasons: the number of functions for each reason.
        problems: a line for each file that has some.
    """

    files: tuple[int, int]
    kept: int
    reasons: Mapping[str, int]
    problems: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        found = self.kept + sum(self.reasons.values())
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items() if count)
        lines = [
            f"{self.kept} of {found} functions, from {self.files[0]} of {self.files[1]} files"
            + (f"; left out: {reasons}" if reasons else "")
        ]
        lines += self.problems[:_MOST]
        if len(self.problems) > _MOST:
            lines.append(f"and {len(self.problems) - _MOST} more files with problems")
        return "\n".join(lines)


_MOST = 10


def part_of(digest: str) -> str:
    """The part that a file belongs to, by the SHA-256 of its content in hexadecimal digits.

    Example:
        >>> part_of("00" * 32), part_of("20" * 32), part_of("80" * 32)
        ('test', 'val', 'train')
    """
    place = int(digest[:8], 16) / 16**8
    if place < TEST_SHARE:
        return "test"
    return "val" if place < TEST_SHARE + VAL_SHARE else "train"


def part_functions(
    folder: SourceFolder, min_tokens: int, max_tokens: int, min_variables: int
) -> tuple[dict[str, list[FileFunction]], LeftOut]:
    """The functions of a folder by the parts of their files, and what was left out.

    Args:
        folder: the files.
        min_tokens: the fewest of a function.
        max_tokens: the most.
        min_variables: the fewest of its own variables.

    Returns:
        The functions in the order of their files, functions in functions too. Of several with the same tokens the first
        is kept, whatever the parts.
    """
    parts: dict[str, list[FileFunction]] = {name: [] for name in NAMES}
    reasons = Counter({"too short": 0, "too long": 0, "with too few variables": 0, "a second time": 0})
    seen: set[tuple[str, ...]] = set()
    files: set[str] = set()
    for path, parsed in folder.sources.items():
        part = parts[part_of(folder.digests[path])]
        num_variables = parsed.function_of_variable.bincount(minlength=len(parsed.functions)).tolist()
        for number, function in enumerate(parsed.functions):
            count = function.last - function.first
            if not min_tokens <= count <= max_tokens:
                reasons["too short" if count < min_tokens else "too long"] += 1
                continue
            tokens = parsed.tokens[function.first : function.last]
            if tokens in seen:
                reasons["a second time"] += 1
                continue
            source = own = None
            if num_variables[number] >= min_variables:  # several may have one name
                source = parsed.part(function.first, function.last)
                own = own_variables(source)
            if source is None or own is None or len(own.names) < min_variables or not own.reads:
                reasons["with too few variables"] += 1
                continue
            seen.add(tokens)
            files.add(path)
            part.append(FileFunction(path, function.name, function.first, source, own))
    kept = sum(map(len, parts.values()))
    problems = tuple(str(folder).splitlines()[1:])
    return parts, LeftOut((len(files), len(folder.sources)), kept, dict(reasons), problems)
