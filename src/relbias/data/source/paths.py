"""The paths that control takes through the tokens of a function, while they are being followed."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

Ends = tuple[int, ...]
"""The tokens where the paths to some place may have been last; none where no path leads there."""
Steps = Generator[Any, Any, Any]
"""Work that yields further work in its midst, and goes on with what that returns."""


class Paths:
    """Edges between the tokens of a file, and the place that is being followed.

    Args:
        tokens: by their nodes, those of the names that are evaluated, and in their order those of other nodes where
            paths part or meet.
        is_event: for each token, whether it is an occurrence of a variable.

    Attributes:
        now: the ends of the paths to the current place.
        raising: the token to which an exception leads from here, if the function does something about it.
        raised: the tokens that exceptions have led to.
        edges: those found so far.
    """

    def __init__(self, names: dict[Any, int], own: dict[Any, list[int]], is_event: list[bool]) -> None:
        self.names = names
        self.own = own
        self.is_event = is_event
        self.now: Ends = ()
        self.raising: int | None = None
        self.raised: set[int] = set()
        self.edges: set[tuple[int, int]] = set()

    def go(self, token: int) -> None:
        """Takes all paths to a token, if there are any: what cannot be reached has no edges."""
        if self.now:
            self.link(self.now, token)
            self.now = (token,)

    def meet(self, node: Any) -> None:
        """Takes all paths to the token of a name, if it is that of a variable."""
        token = self.names.get(node)
        if token is not None and self.is_event[token]:
            self.go(token)

    def may_raise(self) -> None:
        """Says that an exception may be raised here, by what is done with the names before."""
        if self.raising is not None:
            self.link(self.now, self.raising)
            self.raised.add(self.raising)

    def link(self, ends: Ends, token: int) -> None:
        for end in ends:
            if end != token or self.is_event[token]:
                self.edges.add((end, token))

    def joined(self, ends: Iterable[int], token: int) -> Ends:
        """Paths that meet, at a token of their own if they are several, so that the edges do not multiply."""
        distinct = tuple(dict.fromkeys(ends))
        if len(distinct) < 2:
            return distinct
        self.link(distinct, token)
        return (token,)


def run(steps: Steps) -> Any:
    """Does work that yields further work, to any depth.

    Example:
        >>> def count(depth):
        ...     return 1 + (yield count(depth - 1)) if depth else 0
        >>> run(count(5000))
        5000
    """
    waiting, result = [steps], None
    while waiting:
        try:
            waiting.append(waiting[-1].send(result))
            result = None
        except StopIteration as stop:
            waiting.pop()
            result = stop.value
    return result
