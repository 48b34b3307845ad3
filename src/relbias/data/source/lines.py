"""The lines of a text, split once, and the places of its characters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Lines:
    """Where characters stand in a text whose places are told in several ways.

    Parsers count columns in bytes of UTF-8; here places are told in characters. Lines end with a line feed and with
    nothing else.

    Args:
        lines: the text's, without their ends.

    Example:
        >>> lines = Lines(["é = 1", "x"])
        >>> lines.offset(1, 3), lines.place(2), lines.place(6)
        (2, (1, 2), (2, 0))
    """

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self._ascii = [line.isascii() for line in lines]
        self._inner: dict[int, list[int]] = {}

    def offset(self, line: int, column: int) -> int:
        """A character's offset from the beginning of the text.

        Args:
            line: from 1.
            column: in bytes, from 0.
        """
        if not self._ascii[line - 1]:
            column -= bisect_left(self._inner_bytes(line - 1), column)
        return self.starts[line - 1] + column

    def _inner_bytes(self, number: int) -> list[int]:
        """The places of the bytes with which no character begins, found once for a line: lines can be very long."""
        if number not in self._inner:
            data = self.lines[number].encode(errors="surrogatepass")
            self._inner[number] = [place for place, byte in enumerate(data) if byte & 0xC0 == 0x80]
        return self._inner[number]

    def place(self, offset: int) -> tuple[int, int]:
        """The line, from 1, and the column in characters, from 0, of a character."""
        line = min(bisect_right(self.starts, offset), len(self.lines))
        return line, offset - self.starts[line - 1]


def clean(text: str) -> str:
    """A text with line feeds as its only line ends, and without a byte order mark.

    Example:
        >>> clean("\\ufeffa\\r\\nb\\rc")
        'a\\nb\\nc'
    """
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
