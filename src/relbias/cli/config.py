"""Merges recipes, overlays and command-line values into one configuration.

This happens before jsonargparse sees anything: it would take an encoding given by class_path for a mapping from
relations to encodings, or merge two encodings into a third, without a word.
"""

from collections.abc import Sequence
from typing import Any

from relbias.cli.keys import check_keys

ENCODING = ("model", "init_args", "encoding")


def merge(sources: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Merges mappings from left to right and checks the keys after each.

    Mappings are merged key by key and everything else is replaced, with two exceptions: a class_path that differs
    replaces the mapping it stands in, and ``model.init_args.encoding`` is replaced whole, whatever it was; only a
    mapping with nothing but init_args changes the options of an encoding given by class_path.

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
            config = _merged(config, mapping, ())
            check_keys(config)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
    return config


def _merged(old: Any, new: Any, path: tuple[str, ...]) -> Any:
    if path == ENCODING:
        return _encoding(old, new)
    if not isinstance(new, dict):
        return new
    if not isinstance(old, dict) or old.get("class_path", ...) != new.get("class_path", old.get("class_path", ...)):
        old = {}
    return {**old, **{key: _merged(old.get(key), value, (*path, str(key))) for key, value in new.items()}}


def _encoding(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return new
    if "init_args" in new and "class_path" not in new:
        if set(new) != {"init_args"} or not isinstance(old, dict) or "class_path" not in old:
            raise ValueError(
                f"encoding.init_args applies to an encoding given by class_path, and the encoding is {old!r}; "
                "give encoding.class_path first"
            )
        options = new["init_args"] if isinstance(new["init_args"], dict) else {}
        return {**old, "init_args": {**old["init_args"], **options}}
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
    return {"class_path": spec["class_path"], "init_args": spec.get("init_args") or {}}
