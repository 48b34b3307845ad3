"""Python files that a user names, and lines about those that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from relbias.data.source.folder import SUFFIXES, parse_file, parse_folder
from relbias.data.source.parsed import ParsedSource, Problem


def read_files(paths: Sequence[str | Path]) -> tuple[dict[str, ParsedSource], list[str]]:
    """Parses files and folders of Python. Nothing in a file, and no file that is missing, stops the others.

    Args:
        paths: files, whatever their names end in but for those of other languages, and folders, of which all files are
            read that end in .py.

    Returns:
        The sources by their paths, each file once, in the order in which they were given and, of a folder, of their
        names; and a line for each file with something that cannot be read. Where a path is no text that can be printed,
        it is written as in Python.

    Example:
        >>> read_files(["absent.py"])
        ({}, ['absent.py: there is no such file or folder'])
    """
    sources: dict[str, ParsedSource] = {}
    notices: list[str] = []
    seen: set[str] = set()
    for given in map(Path, paths):
        found = _read(given)
        if not found:
            notices.append(f"{_printable(given)}: no file in it ends in .py")
        for path, parsed in found.items():
            name, place = _printable(path), os.path.realpath(path)
            if place in seen:
                continue
            seen.add(place)
            if isinstance(parsed, Problem):
                notices.append(f"{name}: {parsed.message}")
                continue
            sources[name] = parsed
            if parsed.problems:
                line, column, message = min(parsed.problems)
                more = f", and {len(parsed.problems) - 1} more" if len(parsed.problems) > 1 else ""
                what = "a part cannot be read" if parsed.tokens else "cannot be read"
                notices.append(f"{name}:{line}:{column + 1}: {what}: {message}{more}")
            elif not parsed.tokens:
                notices.append(f"{name}: there is nothing in it")
    return sources, notices


def _read(path: Path) -> dict[Path, ParsedSource | Problem]:
    if not os.path.exists(path):
        return {path: Problem(1, 0, "there is no such file or folder")}
    if not path.is_dir():
        if SUFFIXES.get(path.suffix, "python") != "python":
            return {path: Problem(1, 0, f"only Python is read, and its name ends in {path.suffix}")}
        found = parse_file(path, "python")
        return {path: found if isinstance(found, Problem) else found[0]}
    folder = parse_folder(path)
    names = sorted({*folder.sources, *folder.problems})
    return {path / name: folder.sources.get(name) or folder.problems[name][0] for name in names}


def _printable(path: Path) -> str:
    return repr(str(path))[1:-1]
