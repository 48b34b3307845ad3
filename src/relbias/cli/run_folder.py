"""A run folder: config.yaml, metrics.csv, checkpoints/{best,last}.ckpt, fit.json and, after a test, test.json."""

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import torch
import yaml

from relbias import resources
from relbias.cli.arguments import load
from relbias.cli.atomic import write_atomic

CONFIG, BEGUN, METRICS, WEIGHTS, FIT, TEST, PREDICTIONS, BEST, LAST = (
    "config.yaml",
    "begun.yaml",  # the configuration of the first epochs, where a continuation has changed it
    "metrics.csv",
    "weights.json",
    "fit.json",
    "test.json",
    "predictions.csv",
    "checkpoints/best.ckpt",
    "checkpoints/last.ckpt",
)


def label(spec: Any) -> str:
    """A short name for the encoding of a configuration.

    Args:
        spec: the value of ``model.init_args.encoding``.

    Example:
        >>> label({"class_path": "relbias.encodings.Shaw", "init_args": {"max_distance": 3}})
        'shaw'
        >>> label({"offset": "table", "other": "shaw"})
        'table+shaw'
    """
    if isinstance(spec, dict) and "class_path" in spec:
        module, _, name = spec["class_path"].rpartition(".")
        return getattr(getattr(importlib.import_module(module), name), "name", name)
    if isinstance(spec, dict):
        return "+".join(label(value) for value in spec.values()) or "none"
    return re.sub(r"[^\w+.-]", "_", str(spec))


def default_path(recipe: str, config: dict[str, Any], top: Path = Path("runs")) -> Path:
    """The first free folder ``runs/RECIPE/ENCODING-seedSEED[-2, -3 ...]``.

    Args:
        recipe: what was given to the first ``-c``: a name or a path.
        config: the merged configuration.
        top: the folder that holds all runs.
    """
    first, number = family(recipe, config, top), 2
    path = first
    while path.exists():
        path, number = first.with_name(f"{first.name}-{number}"), number + 1
    return path


def family(recipe: str, config: dict[str, Any], top: Path = Path("runs")) -> Path:
    """The path that :func:`default_path` begins with."""
    file = Path(recipe)
    name = file.resolve().parent.name if file.name == CONFIG else file.stem
    encoding = label(config["model"].get("init_args", {}).get("encoding", "none"))
    return top / name / f"{encoding}-seed{config.get('seed_everything', 0)}"


def check_free(path: Path) -> None:
    """Refuses a folder that holds anything, so that no run is overwritten."""
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise _unwritable(path, error) from None
    if taken:
        raise ValueError(f"the run folder {path} exists and is not empty; give another with --run_dir or remove it")


def create(path: Path, config: dict[str, Any]) -> None:
    """Makes the folder and writes config.yaml.

    Args:
        path: the folder.
        config: the complete configuration.

    Raises:
        ValueError: the folder holds something, or cannot be written.
    """
    check_free(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_config(path, config)
    except OSError as error:
        raise _unwritable(path, error) from None


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Writes config.yaml, in place of the one that is there."""
    write_atomic(path / CONFIG, yaml.safe_dump(config, sort_keys=False).encode())


def _unwritable(path: Path, error: OSError) -> ValueError:
    return ValueError(f"cannot write the run folder {path}: {error.strerror}; give another with --run_dir")


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of a run folder.

    Raises:
        ValueError: it is no run folder.
    """
    file = path / CONFIG
    if not file.is_file():
        raise ValueError(f"{path} is not a run folder: it has no {CONFIG}; `relbias fit` makes one")
    config = load(resources.read(file), str(file))
    if not isinstance(config, dict):
        raise ValueError(f"{file} holds {type(config).__name__}, expected a mapping")
    return config


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Writes a record in one step, so that a reader never sees half of it."""
    try:
        write_atomic(path, (json.dumps(record, indent=2) + "\n").encode())
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """The record in a file, or None where there is none.

    Raises:
        ValueError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        record = json.loads(resources.read(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}; remove it") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds {type(record).__name__}, expected a mapping; remove it")
    return record


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of Lightning's, on the processor.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    if not path.is_file():
        raise ValueError(f"there is no checkpoint {path}; did the training finish its first epoch?")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can end in any error, and what torch says of it helps nobody here
        checkpoint = None
    state = checkpoint.get("state_dict") if isinstance(checkpoint, dict) else None
    if (
        checkpoint is None
        or not isinstance(state, dict)
        or not all(isinstance(value, torch.Tensor) for value in state.values())
    ):
        is_last = path.name == Path(LAST).name
        remedy = "continue from best.ckpt with --ckpt_path" if is_last else "put last.ckpt in its place"
        raise ValueError(
            f"the checkpoint {path} cannot be read: it is damaged or not one of Lightning's; train again, or {remedy}"
        )
    return checkpoint


def load_weights(model: torch.nn.Module, path: Path) -> dict[str, Any]:
    """Loads a checkpoint, whose parameters must be exactly the model's.

    Args:
        model: the task.
        path: a checkpoint of Lightning's.

    Returns:
        The checkpoint, with what else is in it.

    Raises:
        ValueError: there is no checkpoint, or it is of another model; the message names what is missing and unexpected.
    """
    checkpoint = read_checkpoint(path)
    check_fits(model, checkpoint["state_dict"], path)
    model.load_state_dict(checkpoint["state_dict"])
    return checkpoint


def check_fits(model: torch.nn.Module, state: dict[str, torch.Tensor], path: Path) -> None:
    """Refuses a state that has not exactly the model's parameters; path is the checkpoint, for the message."""
    problems = differences(model, state)
    if any(problems.values()):
        found = "; ".join(f"{what} {few(names)}" for what, names in problems.items() if names)
        raise ValueError(f"the checkpoint {path} does not fit the configuration beside it: {found}")


def last_good(run_dir: Path) -> str:
    """The checkpoint that a training continues from, with its epoch as metrics.csv counts.

    Args:
        run_dir: the run folder.

    Returns:
        Such as ``runs/digits/shaw-seed0/checkpoints/last.ckpt (epoch 3)``; empty where there is none that can be read.
    """
    file = run_dir / LAST
    try:
        return f"{file} (epoch {read_checkpoint(file)['epoch']})"
    except ValueError:
        return ""


def unfinished(run_dir: Path) -> str:
    """The end of a message about a training that stopped too early: where it stands and what continues it."""
    good = last_good(run_dir)
    command = shlex.join(["relbias", "fit", "-c", str(run_dir / CONFIG), "--ckpt_path", "last"])
    if not good:
        return f"the training in {run_dir} is not finished and has no checkpoint yet; begin again with: {command}"
    return f"the training in {run_dir} is not finished; the last good checkpoint is {good}; continue with: {command}"


def differences(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> dict[str, list[str]]:
    """The names that are ``missing`` in a state, ``unexpected`` there, or ``of another shape`` than the model's."""
    own = model.state_dict()
    return {
        "missing": sorted(own.keys() - state.keys()),
        "unexpected": sorted(state.keys() - own.keys()),
        "of another shape": sorted(name for name in state.keys() & own.keys() if state[name].shape != own[name].shape),
    }


def few(names: list[str]) -> str:
    """The first names of a list and the number of the others.

    Example:
        >>> few(["a", "b", "c", "d"])
        'a, b, c and 1 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
