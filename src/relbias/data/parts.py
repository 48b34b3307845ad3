"""The parts of a text for training, validation and test."""

import hashlib
from collections.abc import Mapping

NAMES = ("train", "val", "test")
SHARE = 0.05  # of the text, for the validation and for the test each


def split_text(text: str) -> dict[str, list[str]]:
    """The first 90 % of the characters for training, the next 5 % for validation, the last 5 % for the test.

    Returns:
        The names of the parts and their documents, here one each.

    Example:
        >>> {name: len(texts[0]) for name, texts in split_text("x" * 40).items()}
        {'train': 36, 'val': 2, 'test': 2}
    """
    held = round(SHARE * len(text))
    first, second = len(text) - 2 * held, len(text) - held
    return {"train": [text[:first]], "val": [text[first:second]], "test": [text[second:]]}


def split_documents(documents: Mapping[str, str]) -> dict[str, list[str]]:
    """Parts whole documents, at least three, in an order that depends on their names only.

    In the order of the SHA-256 of the names, the first that hold 5 % of all characters are the test, the next that
    do are the validation, and the others the training. Each part has at least one.

    Args:
        documents: their texts by their names.

    Returns:
        The names of the parts and their documents, each part in the order of the names.

    Raises:
        ValueError: less than half of the text is left for training.

    Example:
        >>> parts = split_documents({f"{number}.txt": "text" * 10 for number in range(40)})
        >>> {name: len(texts) for name, texts in parts.items()}
        {'train': 36, 'val': 2, 'test': 2}
    """
    order = sorted(documents, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    total = sum(map(len, documents.values()))
    chosen: dict[str, list[str]] = {}
    for part, left in (("test", 2), ("val", 1)):
        chosen[part], held = [], 0
        while not chosen[part] or (held < SHARE * total and len(order) > left):
            chosen[part].append(order.pop(0))
            held += len(documents[chosen[part][-1]])
    chosen["train"] = order
    rest = sum(len(documents[name]) for name in order)
    if 2 * rest < total:
        raise ValueError(
            f"validation and test, chosen by the hash of the names, would take {total - rest} of {total} characters "
            f"({', '.join(chosen['test'] + chosen['val'])}); put the text into one file, or into more files"
        )
    return {part: [documents[name] for name in sorted(chosen[part])] for part in NAMES}
