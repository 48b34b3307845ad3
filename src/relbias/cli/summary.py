"""Makes one line of what jsonargparse says about a value, which is a tree of everything that it tried."""

import re
from itertools import takewhile

_KEY = re.compile(r'Parser key "([\w.]+)":')
_UNION = "Does not validate against any of the Union subtypes"


def summarize(message: str) -> tuple[str, str]:
    """Finds the innermost key of the tree and what is wrong with its value.

    Args:
        message: an ArgumentError's text.

    Returns:
        The key with everything above it, empty where the message names none, and the error.

    Example:
        >>> summarize('Parser key "model":\\n  Parser key "lr":\\n    Expected a <class \\'float\\'>. Got value: x')
        ('model.init_args.lr', 'expected float, got x')
    """
    lines = message.splitlines()
    ends = [i for i, line in enumerate(lines) if _KEY.search(line)]
    if not ends:
        return "", " ".join(message.split())
    end = max(ends, key=lambda i: _indent(lines[i]))
    keys: list[str] = []
    indent = _indent(lines[end]) + 1
    for line in reversed(lines[: end + 1]):  # upwards, from each key to the one that holds it
        found = _KEY.search(line)
        if found and _indent(line) < indent:
            keys.insert(0, found[1])
            indent = _indent(line)
    block = list(takewhile(lambda line: _indent(line) > _indent(lines[end]), lines[end + 1 :]))
    return ".init_args.".join(keys), _error(block) if block else " ".join(message.split())


def _error(block: list[str]) -> str:
    """What the lines below a key say."""
    first, depth = block[0].strip(), _indent(block[0])
    if first != _UNION:
        text = re.sub(r"^Type .* expects a function or a callable class: ", "", first)
        text, _, _ = text.partition(". Got value: Namespace(")
        text, _, value = text.partition(". Got value: ")
        return _expected([text], value)
    items = [line for line in block if line.strip().startswith("- ")]
    top = min(map(_indent, items), default=0)
    errors = [line.strip()[2:] for line in items if _indent(line) == top]
    given = [line for line in block if line.strip().startswith("Given value:") and _indent(line) == depth]
    return _expected(errors, given[-1].partition("Given value: ")[2] if given else "")


def _expected(errors: list[str], value: str) -> str:
    """``expected A or B, got VALUE``; an error that says more than that it is another type goes first."""
    got = f", got {value}" if value else ""
    errors = [error.partition(", but got")[0] for error in errors]
    other = [error for error in errors if not error.startswith("Expected a")]
    if other:
        subclass = re.fullmatch(r"Import path (\S+) does not correspond to a subclass of (\w+)", other[0])
        return f"expected a subclass of {subclass[2]}, got {subclass[1]}" if subclass else f"{other[0]}{got}"
    names = [_type(re.sub(r"^Expected an? ", "", error)) for error in errors]
    return f"expected {' or '.join(dict.fromkeys(names))}{got}"


def _type(text: str) -> str:
    found = re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>", text)
    name = found[1] if found else re.sub(r"^typing\.Literal\[(.*)\]$", r"\1", text)
    return "null" if name == "NoneType" else name


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
