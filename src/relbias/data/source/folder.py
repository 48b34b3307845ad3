"""All source files of a folder, parsed, and a summary of what could not be read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from relbias.data.source.cache import ParseCache
from relbias.data.source.parsed import ParsedSource, Problem
from relbias.data.source.python import parse_python

SUFFIXES = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascript",
    ".java": "java",
    ".go": "go",
}
"""The language of a file, by the end of its name."""
MAX_BYTES = 4 * 2**20
"""Larger files are left out: they are data, or made by programs."""


@dataclass(frozen=True, eq=False)
class SourceFolder:
    """What :func:`parse_folder` found.

    Args:
        sources: by their paths within the folder, in the order of the paths.
        problems: by the same paths; those of files that are left out, which are not in `sources`, of others, and of
            folders that cannot be read.
        num_cached: how many of the sources came from the cache.
        digests: by the paths of the sources, the SHA-256 of what the files hold, in hexadecimal digits.
    """

    sources: dict[str, ParsedSource]
    problems: dict[str, tuple[Problem, ...]]
    num_cached: int
    digests: dict[str, str]

    def __str__(self) -> str:
        tokens = sum(len(source.tokens) for source in self.sources.values())
        functions = sum(len(source.functions) for source in self.sources.values())
        lines = [
            f"{len(self.sources)} files ({self.num_cached} from the cache), {functions} functions, {tokens} tokens"
        ]
        for path, problems in self.problems.items():
            fate = "" if path in self.sources else " (left out)"
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            # A name can hold line feeds, and bytes that are no text.
            lines.append(f"{repr(path)[1:-1]}{fate}: {problems[0]}{more}")
        return "\n".join(lines)


def parse_folder(
    path: str | Path,
    languages: str | tuple[str, ...] = ("python",),
    cache: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    without: Collection[str] = (),
) -> SourceFolder:
    """Parses the source files of a folder and of the folders in it.

    Python is read by its own parser, other languages by their grammars. Links to folders are followed, into each folder
    once. Nothing in a file stops the others: what cannot be read is left out and named in the result. Nor does a cache
    that cannot be written, of which a warning tells.

    Args:
        path: the folder, or one file.
        languages: that, or those, whose files are read, by the ends of their names, :data:`SUFFIXES`.
        cache: a folder where results are kept and found by the content of the files; None for none.
        progress: called after each file with how many are done, and of how many.
        without: names of folders that are left out, wherever they are.

    Raises:
        ValueError: there is no such file or folder, a file of none of these languages, or an unknown language.
        MissingExtraError: a language needs the extra `code`.

    Example:
        >>> parse_folder("absent")
        Traceback (most recent call last):
        ...
        ValueError: there is no file or folder absent; give a source file, or a folder of source files
    """
    languages = (languages,) if isinstance(languages, str) else languages
    root = Path(path)
    if not os.path.exists(root):
        raise ValueError(f"there is no file or folder {path}; give a source file, or a folder of source files")
    unknown = sorted(set(languages) - set(SUFFIXES.values()))
    if unknown:
        known = ", ".join(dict.fromkeys(SUFFIXES.values()))
        raise ValueError(f"no parser of {', '.join(unknown)}; the languages are {known}")
    problems: dict[str, tuple[Problem, ...]] = {}
    files = {
        name: file for name, file in sorted(_files(root, without, problems)) if SUFFIXES.get(file.suffix) in languages
    }
    if not files and not root.is_dir():
        endings = ", ".join(ending for ending, language in SUFFIXES.items() if language in languages)
        raise ValueError(f"{path} is no file of {', '.join(languages)}; its name should end in {endings}")
    store = ParseCache(cache) if cache is not None else None
    sources: dict[str, ParsedSource] = {}
    digests: dict[str, str] = {}
    num_cached = 0
    for done, (name, file) in enumerate(files.items(), start=1):
        found = parse_file(file, SUFFIXES[file.suffix], store)
        if isinstance(found, Problem):
            problems[name] = (found,)
        else:
            sources[name], digests[name], was_cached = found
            num_cached += was_cached
            if sources[name].problems:
                problems[name] = sources[name].problems
        if progress is not None:
            progress(done, len(files))
    return SourceFolder(sources, problems, num_cached, digests)


def _files(
    root: Path, without: Collection[str], problems: dict[str, tuple[Problem, ...]]
) -> Iterator[tuple[str, Path]]:
    """The files with their names; folders that cannot be read are added to the problems."""

    def note(error: OSError) -> None:
        problems[Path(error.filename).relative_to(root).as_posix()] = (_unreadable(error),)

    if not root.is_dir():
        yield root.name, root
        return
    seen: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(root, onerror=note, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError as error:
            note(error)
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(set(folders) - set(without))
        for name in names:
            file = Path(folder, name)
            yield file.relative_to(root).as_posix(), file


def _unreadable(error: OSError) -> Problem:
    return Problem(1, 0, f"cannot be read: {error.strerror}")


def parse_file(file: Path, language: str, store: ParseCache | None = None) -> tuple[ParsedSource, str, bool] | Problem:
    """Parses one file, whatever its name ends in.

    Args:
        file: its path.
        language: one of the values of :data:`SUFFIXES`.
        store: where results are kept and found.

    Returns:
        The source, the SHA-256 of the file's content in hexadecimal digits, and whether it was in the store; or why the
        file cannot be read.

    Raises:
        MissingExtraError: the language needs the extra `code`.
    """
    try:
        if not file.is_file():  # a pipe would block, and a link may lead nowhere
            return Problem(1, 0, "no longer there, or no regular file")
        if file.stat().st_size > MAX_BYTES:
            return Problem(1, 0, f"larger than {MAX_BYTES // 2**20} MiB")
        data = file.read_bytes()
    except OSError as error:
        return _unreadable(error)
    digest = hashlib.sha256(data).hexdigest()
    cached = store.get(data, language) if store is not None else None
    if cached is not None:
        return cached, digest, True
    parsed = parse_python(data) if language == "python" else _with_grammar(data, language)
    if store is not None:
        store.put(data, parsed)
    return parsed, digest, False


def _with_grammar(data: bytes, language: str) -> ParsedSource:
    from relbias.data.source.grammars import parse_with_grammar  # of an extra that Python does not need

    return parse_with_grammar(data, language)
