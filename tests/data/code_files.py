"""Python files of each part, and the same files with another name at a token."""

import functools
import hashlib

from relbias.data.source.functions import part_of
from relbias.data.source.python import parse_python

SOURCES = {
    "train": [
        """
        def clamp(value, low, high):
            if value < low:
                return low
            return min(value, high)


        class Queue:
            def __init__(self, items, size=None):
                self.items = list(items)
                self.size = size

            def take(self, count):
                taken = self.items[:count]
                self.items = self.items[count:]
                return taken
        """,
        """
        def pairs(rows, key):
            found = {}
            for row in rows:
                name = row[key]
                found.setdefault(name, []).append(row)
            return [(name, group) for name, group in found.items() if group]


        def outer(start):
            step = 2

            def inner(count):
                total = start
                for _ in range(count):
                    total += step
                return total

            return inner(start) + inner(step)
        """,
    ],
    "val": [
        """
        def read(path, encoding):
            with open(path, encoding=encoding) as file:
                text = file.read()
            return text
        """
    ],
    "test": [
        """
        def search(self, items, wanted):
            low, high = 0, len(items)
            while low < high:
                middle = (low + high) // 2
                if items[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            return self.check(low, lambda place: place + low)


        def larger(first, second):
            return first if first > second else second
        """
    ],
}


def write_code(root, sources=None):
    """Writes each text into a file whose content's hash puts it into its part."""
    root.mkdir(parents=True, exist_ok=True)
    for part, texts in (sources or SOURCES).items():
        for place, text in enumerate(texts):
            data = in_part(unindented(text), part).encode()
            (root / f"{part}_{place}.py").write_bytes(data)
    return root


def in_part(text, part):
    """The text with a comment that puts it into a part."""
    number = 0
    while part_of(hashlib.sha256(f"{text}# {number}\n".encode()).hexdigest()) != part:
        number += 1
    return f"{text}# {number}\n"


def unindented(text):
    """A text without the indentation of its first line, and without what stands before that."""
    lines = text.strip("\n").rstrip(" ").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] for line in lines)


def reparsed(text, function, names):
    """The function as it is parsed from its file with other names at some tokens of the function.

    Args:
        text: of the file.
        function: the place of its name among those of the file.
        names: by the tokens, which are counted from the beginning of the function.
    """
    parsed = parsed_once(text)
    first = parsed.functions[function].first
    lines = text.split("\n")
    for token in sorted(names, reverse=True):
        line, column, _, end = parsed.spans[first + token].tolist()
        lines[line - 1] = lines[line - 1][:column] + names[token] + lines[line - 1][end:]
    changed = parse_python("\n".join(lines))
    return changed.part(changed.functions[function].first, changed.functions[function].last)


@functools.cache
def parsed_once(text):
    return parse_python(text)
