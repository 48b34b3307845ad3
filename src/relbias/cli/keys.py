"""Checks the keys of a configuration before jsonargparse does, whose answer would be a page long."""

import importlib
import inspect
from typing import Any

from relbias._extras import MissingExtraError, extra
from relbias._nearest import nearest
from relbias.encodings.base import Encoding, find_encoding

with extra("train"):
    from lightning.pytorch import Trainer

TOP_KEYS = ("seed_everything", "model", "data", "trainer")
# What would leave a run folder without metrics.csv or checkpoints/best.ckpt.
_NO_RUN = {
    "fast_dev_run": True,
    "barebones": True,
    "enable_checkpointing": False,
    "limit_val_batches": 0,
    "max_epochs": 0,
    "max_steps": 0,
}


def check_keys(config: dict[str, Any]) -> None:
    """Checks that every key is one of ours, the Trainer's, or an argument of the class it stands under.

    Raises:
        ValueError: a key, class or encoding that does not exist, with the nearest that does.
    """
    for key, value in config.items():
        if key not in TOP_KEYS:
            raise ValueError(f"unknown key {key!r}; {nearest(str(key), TOP_KEYS)}")
        if key != "seed_everything" and not isinstance(value, dict):
            raise ValueError(f"{key} is {value!r}, expected a mapping")
    seed = config.get("seed_everything", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed_everything is {seed!r}, expected an integer")
    trainer = config.get("trainer", {})
    _check_names(trainer, _arguments(Trainer), "trainer")
    for key, value in _NO_RUN.items():
        given = trainer.get(key)
        if given is not None and (given == value or (value is True and given)):
            raise ValueError(
                f"trainer.{key} is {given!r}, and a run needs its training, validation and checkpoints; leave it out, "
                "and for a short trial give -c trainer/smoke"
            )
    for key, value in config.items():
        _check_classes(value, key)
    if "encoding" in config.get("model", {}).get("init_args", {}):
        _check_encoding(config["model"]["init_args"]["encoding"], "model.init_args.encoding")


def _check_encoding(spec: Any, path: str, in_sum: bool = False) -> None:
    """Checks a name, a class_path or, unless inside one already, a mapping from relations to these."""
    if isinstance(spec, str):
        find_encoding(spec)
    elif isinstance(spec, dict) and "class_path" in spec:
        found = find_class(spec["class_path"], path)
        if inspect.isclass(found) and not issubclass(found, Encoding):
            raise ValueError(f"{path}.class_path is {found.__module__}.{found.__qualname__}, which is no Encoding")
    elif isinstance(spec, dict) and not in_sum:
        for key, inner in spec.items():
            _check_encoding(inner, f"{path}.{key}", in_sum=True)
    else:
        options = "; options of an encoding given by class_path go under encoding.init_args" if in_sum else ""
        raise ValueError(f"{path} is {spec!r}, expected the name of an encoding or a class_path{options}")


def _check_classes(value: Any, path: str) -> None:
    if isinstance(value, list):
        for position, item in enumerate(value):
            _check_classes(item, f"{path}[{position}]")
    if not isinstance(value, dict):
        return
    init_args = value.get("init_args", {})
    if not isinstance(init_args, dict):
        empty = "empty" if init_args is None else repr(init_args)
        raise ValueError(f"{path}.init_args is {empty}, expected a mapping; fill it or leave it out")
    class_path = value.get("class_path", "")
    if not isinstance(class_path, str):
        raise ValueError(f"{path}.class_path is {class_path!r}, expected a module and a class as in torch.nn.Linear")
    if "." in class_path:
        _check_names(value, ["class_path", "init_args"], path)
        _check_names(init_args, _arguments(find_class(class_path, path)), f"{path}.init_args")
    for key, inner in value.items():
        _check_classes(inner, f"{path}.{key}")


def _check_names(given: dict[str, Any], known: list[str] | None, path: str) -> None:
    for name in given:
        if known is not None and name not in known:
            raise ValueError(f"unknown key {f'{path}.{name}'!r}; {nearest(str(name), known)}")


def _arguments(cls: Any) -> list[str] | None:
    """The names of a class's arguments, or None where it takes any."""
    parameters = inspect.signature(cls).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return [parameter.name for parameter in parameters]


def find_class(class_path: str, path: str) -> Any:
    """Imports a class.

    Args:
        class_path: its module and name, such as ``relbias.encodings.Shaw``.
        path: the key where it stands, for messages.

    Raises:
        ValueError: there is no such module or class; the message gives the nearest name.
        MissingExtraError: the module needs an optional package.
    """
    module_name, _, name = class_path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except MissingExtraError:
        raise
    except (ImportError, ValueError, TypeError) as error:  # the last two where the name of the module is not one
        raise ValueError(f"{path}.class_path is {class_path!r}, which cannot be imported: {error}") from None
    if not hasattr(module, name):
        known = [key for key in dir(module) if inspect.isclass(getattr(module, key))]
        raise ValueError(
            f"{path}.class_path is {class_path!r}, and {module_name} has no {name!r}; {nearest(name, known)}"
        )
    found = getattr(module, name)
    if not callable(found):
        raise ValueError(f"{path}.class_path is {class_path!r}, which is {found!r}, expected a class")
    return found
