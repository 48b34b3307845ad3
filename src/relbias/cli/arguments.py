"""Reads the command line and the YAML files that it names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from relbias import resources
from relbias._nearest import nearest
from relbias.cli.keys import TOP_KEYS


@dataclass
class Arguments:
    """The arguments of a command, in the order of the command line.

    Args:
        sources: pairs of a label for messages and a mapping: one for each ``-c`` and each ``--key value``.
        configs: what was given to ``-c``.
        options: what was given to the command's own options, without dashes.
        positional: everything that is no option.
    """

    sources: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 1e-3 for a string; nobody who writes a learning rate means one."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def load(text: str, label: str) -> Any:
    """Reads YAML.

    Args:
        text: the document.
        label: what to call it in a message.

    Raises:
        ValueError: it is not YAML.

    Example:
        >>> load("lr: 1e-3", "recipe")
        {'lr': 0.001}
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{label} is not YAML: {' '.join(str(error).split())}") from None


def read(name: str) -> dict[str, Any]:
    """The mapping in a recipe or config, by name or path.

    Raises:
        ValueError: no such name or file, or a file without a mapping.
    """
    mapping = load(resources.read(resources.find(name)), name)
    if not isinstance(mapping, dict):
        raise ValueError(
            f"{name} holds {type(mapping).__name__}, expected a mapping with keys such as model or trainer"
        )
    return mapping


def parse(argv: Sequence[str], options: Sequence[str] = (), keys: Sequence[str] = TOP_KEYS) -> Arguments:
    """Reads ``-c NAME``, ``--some.key value`` (or ``--some.key=value``), the command's own options and the rest.

    Args:
        argv: the command line after the command.
        options: the command's own options, without dashes.
        keys: the keys that messages name; the command itself refuses others, and says why.

    Raises:
        ValueError: an option without its value, or an unknown one.

    Example:
        >>> parse(["--trainer.max_epochs", "3"]).sources
        [('--trainer.max_epochs', {'trainer': {'max_epochs': 3}})]
    """
    arguments, rest = Arguments(), list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            arguments.positional.append(word)
            continue
        name, has_value, value = word.partition("=")
        key = name.removeprefix("--")
        is_key = name.startswith("--") and key.partition(".")[0] in TOP_KEYS
        is_option = name.startswith("--") and key in options
        if not (is_key or is_option or name in ("-c", "--config")):
            known = ["-c", *(f"--{each}" for each in (*options, *keys))]
            raise ValueError(f"unknown option {name!r}; {nearest(name, known)}")
        if not has_value:
            if not rest:
                raise ValueError(f"{name} needs a value")
            value = rest.pop(0)
        if name in ("-c", "--config"):
            arguments.configs.append(value)
            arguments.sources.append((value, read(value)))
        elif is_option:
            arguments.options[key] = value
        else:
            arguments.sources.append((name, _nested(key.split("."), _value(value, name))))
    return arguments


def _value(text: str, label: str) -> Any:
    return load(text, label) if text else text


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value
