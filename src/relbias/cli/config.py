"""Merges recipes, overlays and command-line values into one configuration.

This happens before jsonargparse sees anything: it would take an encoding given by class_path for a mapping from
relations to encodings, or merge two encodings into a third, without a word.
"""

import inspect
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from relbias.cli.keys import check_keys, find_class

Source: TypeAlias = tuple[str, dict[str, Any]]
"""What to call a mapping in a message, a name or path or option, and the mapping."""
ENCODING = ("model", "init_args", "encoding")
NETWORK = ("model", "init_args", "network")
CALLBACKS = ("trainer", "callbacks")


def merge(sources: Sequence[Source]) -> dict[str, Any]:
    """Merges mappings from left to right and checks the keys after each.

    Mappings are merged key by key and everything else is replaced, with these exceptions: a class_path that differs
    replaces the mapping it stands in, but of a network (``model.init_args.network``) the options stay that the new
    class has too; ``model.init_args.encoding`` is replaced whole, whatever it was, and only a mapping with nothing but
    init_args changes the options of an encoding given by class_path; ``trainer.callbacks`` add up: those of a
    class_path that is there take its place, others come behind, and null or [] removes all.

    Args:
        sources: pairs of a label for messages and a mapping.

    Raises:
        ValueError: a source that does not fit what comes before it; the message begins with its label.

    Example:
        >>> one = {"model": {"init_args": {"encoding": {"offset": "t5"}}}}
        >>> merge([("a", one), ("b", {"model": {"init_args": {"encoding": "shaw"}}})])
        {'model': {'init_args': {'encoding': 'shaw'}}}
    """
    config: dict[str, Any] = {}
    for label, mapping in sources:
        try:
            config = _merged(config, deepcopy(mapping), ())
            check_keys(config)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
    return config


def origin(sources: Sequence[Source], key: str = "") -> str:
    """The beginning of a message about a merged configuration: which sources it is about.

    Args:
        sources: see :func:`merge`.
        key: the key that the message is about; none where it can be about any.

    Returns:
        The file that was the last to set the key, or all files; empty where an option set it, which the key names.

    Example:
        >>> sources = [("a", {"trainer": {"max_epochs": 3}}), ("b", {"data": {}}), ("--data.x", {"data": {"x": 1}})]
        >>> origin(sources, "trainer.max_epochs"), origin(sources, "data.x"), origin(sources)
        ('a: ', '', 'a with b and the options given: ')
    """
    files = [label for label, _ in sources if not label.startswith("--")]
    if not key:
        return f"{' with '.join(files)}{' and the options given' if len(files) < len(sources) else ''}: "
    depths = [_depth(mapping, key.split(".")) for _, mapping in sources]
    last = max(range(len(sources)), key=lambda position: (depths[position], position))
    return f"{sources[last][0]}: " if sources[last][0] in files else ""


def holds(mapping: Any, key: str) -> bool:
    """Whether a mapping holds a key with dots.

    Example:
        >>> holds({"trainer": {"max_epochs": 3}}, "trainer.max_epochs"), holds({"trainer": None}, "trainer.max_epochs")
        (True, False)
    """
    path = key.split(".")
    return _depth(mapping, path) == len(path)


def _depth(mapping: Any, path: list[str]) -> int:
    """How many keys of the path a mapping holds."""
    for depth, key in enumerate(path):
        if not isinstance(mapping, dict) or key not in mapping:
            return depth
        mapping = mapping[key]
    return len(path)


def _merged(old: Any, new: Any, path: tuple[str, ...]) -> Any:
    if path == ENCODING:
        return _encoding(old, new)
    if path == CALLBACKS:
        return _callbacks(old, new)
    if not isinstance(new, dict):
        return new
    if not isinstance(old, dict) or old.get("class_path", ...) != new.get("class_path", old.get("class_path", ...)):
        old = _shared_options(old, new) if path == NETWORK else {}
    return {**old, **{key: _merged(old.get(key), value, (*path, str(key))) for key, value in new.items()}}


def _shared_options(old: Any, new: dict[str, Any]) -> dict[str, Any]:
    """The options of a network that the class of another one names too, such as its numbers of inputs and outputs."""
    class_path = new.get("class_path")
    options = old.get("init_args") if isinstance(old, dict) else None
    if not isinstance(options, dict) or not isinstance(class_path, str) or "." not in class_path:
        return {}
    names = inspect.signature(find_class(class_path, ".".join(NETWORK))).parameters
    return {"init_args": {name: value for name, value in options.items() if name in names}}


def _callbacks(old: Any, new: Any) -> Any:
    given = [new] if isinstance(new, dict) else new
    if not isinstance(given, list) or not given:
        return given
    merged = _by_class(old if isinstance(old, list) else [])
    merged.update(_by_class(given))  # a key that is there keeps its place
    return [entry for entries in merged.values() for entry in entries]


def _by_class(callbacks: list[Any]) -> dict[str, list[Any]]:
    """The entries by class_path; a bare string is a callback without options to jsonargparse."""
    found: dict[str, list[Any]] = {}
    for entry in callbacks:
        if isinstance(entry, dict) and "class_path" not in entry:
            raise ValueError(
                f"trainer.callbacks has {entry!r}, expected a class_path; give the whole callback, its options under "
                "init_args"
            )
        found.setdefault(str(entry["class_path"] if isinstance(entry, dict) else entry), []).append(entry)
    return found


def _encoding(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    if "init_args" in new and "class_path" not in new:
        if set(new) != {"init_args"} or not isinstance(old, dict) or "class_path" not in old:
            raise ValueError(
                f"encoding.init_args applies to an encoding given by class_path, and the encoding is {old!r}; "
                "give encoding.class_path first"
            )
        return {**old, "init_args": {**old["init_args"], **_options(new)}}
    if "class_path" in new:
        return _with_class_path(new)
    return {key: _with_class_path(value) if isinstance(value, dict) else value for key, value in new.items()}


def _with_class_path(spec: dict[str, Any]) -> dict[str, Any]:
    """The mapping with init_args, without which jsonargparse could take it for a mapping from relations."""
    unknown = [key for key in spec if key not in ("class_path", "init_args")]
    if unknown or "class_path" not in spec:
        raise ValueError(
            f"an encoding given by class_path has the keys class_path and init_args, got {sorted(map(str, spec))}; "
            "its options go under init_args"
        )
    return {"class_path": spec["class_path"], "init_args": _options(spec)}


def _options(spec: dict[str, Any]) -> dict[str, Any]:
    options = spec.get("init_args", {})
    if not isinstance(options, dict):
        raise ValueError(f"{'.'.join(ENCODING)}.init_args is {options!r}, expected a mapping")
    return options
