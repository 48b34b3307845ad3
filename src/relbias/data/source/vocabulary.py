"""The tokens of source code as numbers, whole or split into the words of identifiers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from relbias.data.source.parsed import KINDS, ParsedSource
from relbias.relations.base import check_size

_WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def split_identifier(name: str) -> list[str]:
    """The words of a name, in snake case or camel case, in lower case; numbers are words too.

    A name without any, such as "_", is its own word.

    Example:
        >>> split_identifier("parseHTTPResponse_2"), split_identifier("__init__"), split_identifier("_")
        (['parse', 'http', 'response', '2'], ['init'], ['_'])
    """
    return [word.lower() for word in _WORDS.findall(name)] or [name]


class SourceVocabulary:
    """A number for each frequent token of some sources, or for each frequent word of their identifiers.

    0 is padding. 1 to 5 are the tokens without a number of their own, by their kinds, in the order of
    :data:`~relbias.data.source.parsed.KINDS`. Then come the others, the most frequent first.

    Args:
        sources: those whose tokens have numbers, such as the training part.
        size: how many numbers there are at most, those six included.
        max_words: W, how many words of an identifier are kept, from its first; None for whole tokens.

    Raises:
        ValueError: a size below 6, or a number of words below 1.

    Example:
        >>> from relbias.data.source.python import parse_python
        >>> vocabulary = SourceVocabulary([parse_python("total_size = size")], max_words=2)
        >>> vocabulary.words
        ('size', '=', 'total')
        >>> vocabulary.encode(parse_python("max_size = 3")).tolist()
        [[1, 6], [7, 0], [4, 0]]
    """

    def __init__(self, sources: Iterable[ParsedSource], size: int = 10_000, max_words: int | None = None) -> None:
        check_size("size", size, len(KINDS) + 1)
        if max_words is not None:
            check_size("max_words", max_words, 1)
        self.max_words = max_words
        counts: Counter[str] = Counter()
        for source in sources:
            for token, kind in zip(source.tokens, source.kinds.tolist(), strict=True):
                counts.update(self._split(token, kind))
        # Those that are equally frequent in the order of the alphabet, so that the order of the files does not count.
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        self._number(ordered[: size - len(KINDS) - 1])

    @classmethod
    def of_words(cls, words: Iterable[str], max_words: int | None = None) -> SourceVocabulary:
        """The vocabulary that has these `words`, in their order.

        Example:
            >>> from relbias.data.source.python import parse_python
            >>> SourceVocabulary.of_words(["x", "="]).encode(parse_python("x = y")).tolist()
            [6, 7, 1]
        """
        vocabulary = cls((), max_words=max_words)
        vocabulary._number(words)
        return vocabulary

    def _number(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self._places = {word: place for place, word in enumerate(self.words, start=len(KINDS) + 1)}

    def __len__(self) -> int:
        return len(self.words) + len(KINDS) + 1

    def encode(self, source: ParsedSource) -> Tensor:
        """The numbers of a source's tokens.

        Returns:
            (N,) int64, or (N, W) with words, the places after a token's last word 0.
        """
        tokens = zip(source.tokens, source.kinds.tolist(), strict=True)
        rows = [[self._places.get(word, kind + 1) for word in self._split(token, kind)] for token, kind in tokens]
        if self.max_words is None:
            return torch.tensor([row[0] for row in rows], dtype=torch.int64)
        padded = [row + [0] * (self.max_words - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.int64).view(-1, self.max_words)

    def _split(self, token: str, kind: int) -> list[str]:
        if self.max_words is None or KINDS[kind] != "name":
            return [token]
        return split_identifier(token)[: self.max_words]
