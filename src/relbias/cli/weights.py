"""Starting a training from the weights of another run, as far as they fit."""

from pathlib import Path
from typing import Any

import torch

from relbias.cli.run_folder import BEST, differences, few, read_checkpoint


def load_fitting(model: torch.nn.Module, path: Path) -> dict[str, Any]:
    """Loads what a checkpoint and a model share: the parameters and buffers of the same name and shape.

    Args:
        model: the task.
        path: a checkpoint of Lightning's, or a run folder, whose best.ckpt is taken.

    Returns:
        What can be recorded: the file, the number of loaded entries, and the names of those left out: ``missing`` in
        the checkpoint, ``unused`` by the model, ``of another shape``.

    Raises:
        ValueError: there is no checkpoint, or nothing in it fits.
    """
    if not path.exists():
        raise ValueError(f"there is no {path}; give --weights a run folder or a checkpoint")
    file = path / BEST if path.is_dir() else path
    state = read_checkpoint(file)["state_dict"]
    problems = differences(model, state)
    left_out = {*problems["unexpected"], *problems["of another shape"]}
    fitting = {name: value for name, value in state.items() if name not in left_out}
    if not fitting:
        raise ValueError(
            f"nothing in {file} fits the model: it holds {few(sorted(state))}, and the model has "
            f"{few(sorted(model.state_dict()))}; give a run of a similar model"
        )
    model.load_state_dict(fitting, strict=False)
    return {
        "checkpoint": str(file.absolute()),  # a training that begins again reads it from wherever it is called
        "loaded": len(fitting),
        "missing": problems["missing"],
        "unused": problems["unexpected"],
        "of another shape": problems["of another shape"],
    }


def describe(record: dict[str, Any]) -> str:
    """One line about what :func:`load_fitting` did.

    Example:
        >>> describe({"checkpoint": "a.ckpt", "loaded": 3, "missing": ["w", "b"], "unused": []})
        'weights of a.ckpt: 3 loaded; 2 missing there, which start anew: w, b'
    """
    text = f"weights of {record['checkpoint']}: {record['loaded']} loaded"
    for key, what in (
        ("missing", "missing there, which start anew"),
        ("of another shape", "of another shape, which start anew"),
        ("unused", "not used"),
    ):
        if record.get(key):
            text += f"; {len(record[key])} {what}: {few(record[key])}"
    return text
