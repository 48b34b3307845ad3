"""Parsed sources on disk, found by their content."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch

from relbias.data.source.parsed import ACCESSES, KINDS, Function, ParsedSource, Problem

FORMAT = 4
"""To be raised with every change of what parsing gives or of how it is written."""
_ARRAYS = (
    "kinds",
    "spans",
    "parents",
    "node_of_token",
    "variable_of_token",
    "access_of_token",
    "function_of_variable",
    "flow",
    "computed_from",
    "calls",
)
_MANY = torch.iinfo(torch.int32).max


class ParseCache:
    """A folder with a file for each parsed source, an npz of integers and of JSON, without pickle.

    The key is a hash of the source's bytes, its language, :data:`FORMAT` and the version of the parser, so that what is
    found by it is what parsing would give. A file that is damaged, or that holds another key, counts as absent.

    Args:
        folder: made when something is first kept.

    Example:
        >>> import tempfile
        >>> from relbias.data.source.python import parse_python
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = ParseCache(folder)
        ...     cache.put(b"x = 1", parse_python(b"x = 1"))
        ...     cache.get(b"x = 1", "python").tokens, cache.get(b"x = 2", "python")
        (('x', '=', '1'), None)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._keeps = True

    def get(self, source: bytes, language: str) -> ParsedSource | None:
        """What was kept for this source; None where there is nothing, or nothing that can be trusted."""
        key = _key(source, language)
        try:
            with np.load(self._path(key), allow_pickle=False) as file:
                arrays = {name: torch.from_numpy(file[name]) for name in _ARRAYS}
                texts = json.loads(file["texts"].tobytes())
            if texts["key"] != key or min(texts["node_types"], default=0) < 0:
                return None
            parsed = ParsedSource(
                language=language,
                tokens=tuple(texts["tokens"]),
                node_types=tuple(texts["names"][number] for number in texts["node_types"]),
                functions=tuple(Function(*function) for function in texts["functions"]),
                problems=tuple(Problem(*problem) for problem in texts["problems"]),
                **arrays,
            )
            return parsed if _is_whole(parsed) else None
        except Exception:  # one wrong bit can ask for a password, for more memory than there is, and much else
            return None

    def put(self, source: bytes, parsed: ParsedSource) -> None:
        """Keeps what a source gave. A reader finds the whole file or none. Warns once if nothing can be written."""
        if not self._keeps:
            return
        try:
            self._write(source, parsed)
        except OSError as error:
            self._keeps = False
            warnings.warn(
                f"nothing is kept in {self.folder}: {error.strerror}; the files are parsed anew each time", stacklevel=3
            )

    def _write(self, source: bytes, parsed: ParsedSource) -> None:
        key = _key(source, parsed.language)
        names = sorted(set(parsed.node_types))
        places = {name: place for place, name in enumerate(names)}
        texts = {
            "key": key,
            "tokens": parsed.tokens,
            "names": names,
            "node_types": [places[name] for name in parsed.node_types],
            "functions": parsed.functions,
            "problems": parsed.problems,
        }
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{uuid4().hex}.part")
        try:
            with open(temporary, "xb") as file:  # with the rights of other new files, so that others may read it
                data = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
                np.savez_compressed(file, texts=data, **{name: getattr(parsed, name).numpy() for name in _ARRAYS})
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.npz"


def _key(source: bytes, language: str) -> str:
    parser = sys.version if language == "python" else _versions(language)
    return hashlib.sha256(f"{FORMAT} {language} {parser}\n".encode() + source).hexdigest()


def _versions(language: str) -> str:
    packages = ("tree-sitter", f"tree-sitter-{language}")
    try:
        return " ".join(version(package) for package in packages)
    except PackageNotFoundError:
        return "none"


def _is_whole(parsed: ParsedSource) -> bool:
    n, v, functions, variables = (
        len(values) for values in (parsed.tokens, parsed.node_types, parsed.functions, parsed.function_of_variable)
    )
    edges = [(array, (2, array.shape[-1]), 0, n) for array in (parsed.flow, parsed.computed_from, parsed.calls)]
    arrays = (
        (parsed.kinds, (n,), 0, len(KINDS)),
        (parsed.spans, (n, 4), 0, _MANY),
        (parsed.parents, (v,), -1, v),
        (parsed.node_of_token, (n,), 0, v),
        (parsed.variable_of_token, (n,), -1, variables),
        (parsed.access_of_token, (n,), 0, len(ACCESSES)),
        (parsed.function_of_variable, (variables,), -1, functions),
        *edges,
    )
    numbers = [number for function in parsed.functions for number in function[1:]]
    numbers += [number for problem in parsed.problems for number in problem[:2]]
    texts = (*parsed.tokens, *(function.name for function in parsed.functions), *(p.message for p in parsed.problems))
    if {*map(type, numbers)} - {int} or {*map(type, texts)} - {str}:
        return False
    if not all(0 <= node < v and 0 <= first <= last <= n for _, node, first, last in parsed.functions):
        return False
    if not bool((parsed.parents < torch.arange(v)).all()):
        return False
    return all(
        array.shape == shape
        and array.dtype == torch.int32
        and (not array.numel() or low <= int(array.min()) <= int(array.max()) < high)
        for array, shape, low, high in arrays
    )
