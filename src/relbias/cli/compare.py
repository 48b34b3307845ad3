"""Compares the configurations of runs: whether one picture can show them, and what tells one from another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relbias.cli.table import describe

_LOADING = ("batch_size", "num_workers")  # of the data; they change no number


def check_alike(run_dirs: Sequence[Path], configs: Sequence[dict[str, Any]]) -> None:
    """Refuses runs that are not of one task on the same data.

    Args:
        run_dirs: the runs, for the message.
        configs: their complete configurations.

    Raises:
        ValueError: names the first key that differs.
    """
    kinds = [_flat({"model.class_path": config["model"]["class_path"], "data": config["data"]}) for config in configs]
    for run_dir, kind in zip(run_dirs, kinds, strict=True):
        for key in kinds[0] | kind:
            first, own = kinds[0].get(key), kind.get(key)
            if first != own and key.rpartition(".")[2] not in _LOADING:
                raise ValueError(
                    f"{run_dirs[0]} and {run_dir} differ in {key}: {first} and {own}; "
                    "one picture compares runs of one task on the same data"
                )


def line_names(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The line that each run belongs to: its encoding, and what else tells it from other runs with that encoding.

    Args:
        configs: complete configurations. Seeds, and what says how and where the Trainer works, do not count.

    Example:
        >>> def config(lr, seed):
        ...     return {"model": {"init_args": {"encoding": "t5", "lr": lr}}, "seed_everything": seed}
        >>> line_names([config(0.1, 0), config(0.1, 1)]), line_names([config(0.1, 0), config(0.2, 0)])
        (['t5', 't5'], ['t5, lr=0.1', 't5, lr=0.2'])
    """
    encodings = [describe(config["model"].get("init_args", {}).get("encoding", "none")) for config in configs]
    settings = []
    for config in configs:
        length = {key: config.get("trainer", {}).get(key) for key in ("max_epochs", "max_steps")}
        settings.append(_flat({**config["model"].get("init_args", {}), **length}))
    names = []
    for encoding, own in zip(encodings, settings, strict=True):
        others = [other for name, other in zip(encodings, settings, strict=True) if name == encoding]
        keys = [
            key for key in {k: 0 for other in others for k in other} if any(o.get(key) != own.get(key) for o in others)
        ]
        names.append(", ".join([encoding, *(f"{key.rpartition('.')[2]}={own.get(key)}" for key in keys)]))
    return names


def _flat(mapping: dict[str, Any], above: str = "") -> dict[str, Any]:
    """The values of nested mappings by their keys with dots."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return flat
