"""Changes of a trained network that need no other weights, such as RoPE's scalings for longer contexts, or a window."""

import copy
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relbias.cli.arguments import read
from relbias.cli.config import holds, merge
from relbias.cli.keys import find_class
from relbias.encodings import Encoding
from relbias.encodings.base import find_encoding

ENCODING = "model.init_args.encoding"


def swapped(
    name: str, run_dirs: Sequence[Path], configs: Sequence[dict[str, Any]]
) -> list[tuple[Path, dict[str, Any]]]:
    """The configurations of runs with a config laid on them, where it changes them and their weights can be the same.

    A config with an encoding applies to the runs whose encoding has its class or one that it derives from; options that
    it does not give stay those of the run. Without an encoding it applies to all.

    Args:
        name: of the config, or its path.
        run_dirs: the runs.
        configs: their complete configurations.

    Returns:
        The runs that it applies to, with their configurations.

    Raises:
        ValueError: the config has anything but options of the model, or applies to no run.
    """
    mapping = read(name)
    if set(mapping) != {"model"} or set(mapping["model"] or ()) != {"init_args"}:
        raise ValueError(f"{name} must set options of the network or its encoding, under model.init_args, and no other")
    found = []
    for run_dir, config in zip(run_dirs, configs, strict=True):
        changed = merge([(str(run_dir), copy.deepcopy(config)), (name, mapping)])
        if holds(mapping, ENCODING):
            own, new = config["model"]["init_args"]["encoding"], changed["model"]["init_args"]["encoding"]
            base, cls = _class(own), _class(new)
            if base is None or cls is None or not issubclass(cls, base):
                continue
            options = {**_options(own), **_options(new)}
            class_path = f"{cls.__module__}.{cls.__qualname__}"
            same = cls is base and options == _options(own)
            spec = own if same else {"class_path": class_path, "init_args": options}
            changed["model"]["init_args"]["encoding"] = spec
        if changed != config:
            found.append((run_dir, changed))
    if not found:
        raise ValueError(
            f"{name}: no run has weights that it takes unchanged; an encoding takes those of runs with its own class "
            "or one that it derives from, as rope_yarn takes those of rope"
        )
    return found


def _class(spec: Any) -> type[Encoding] | None:
    """The class of one encoding, by name or by class_path; None for anything else."""
    if isinstance(spec, str):
        return find_encoding(spec)
    if isinstance(spec, dict) and "class_path" in spec:
        found = find_class(spec["class_path"], "encoding")
        return found if inspect.isclass(found) and issubclass(found, Encoding) else None
    return None


def _options(spec: Any) -> dict[str, Any]:
    return spec.get("init_args", {}) if isinstance(spec, dict) else {}
