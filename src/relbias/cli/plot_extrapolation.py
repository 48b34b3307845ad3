"""plot extrapolation: the numbers of the test of trained models, at sizes other than that of their training."""

import copy
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from relbias.cli import run_folder
from relbias.cli.build import Experiment, build
from relbias.cli.compare import check_alike, line_names
from relbias.cli.swap import swapped
from relbias.cli.table import TEST
from relbias.encodings.resize import Unit
from relbias.plot import Measurement
from relbias.tasks import Task

# How a network refuses a batch: ours with the first, timm with the second, torch with the others.
_REFUSALS = (ValueError, AssertionError, RuntimeError, IndexError)


def read_sizes(text: str | None) -> list[int]:
    """The sizes given to ``--at``.

    Raises:
        ValueError: there are none, or they are no positive integers that increase.

    Example:
        >>> read_sizes("16,24,32")
        [16, 24, 32]
    """
    if text is None:
        raise ValueError("plot extrapolation takes the sizes to test at, such as --at 16,24,32")
    words = [word.strip() for word in text.split(",")]
    sizes = [int(word) if word.isdecimal() else 0 for word in words]
    if 0 in sizes or any(second <= first for first, second in pairwise(sizes)):
        raise ValueError(f"--at is {text!r}, expected positive integers that increase, such as 16,24,32")
    return sizes


def evaluate(
    run_dirs: Sequence[Path], sizes: Sequence[int], unit: Unit | None, changes: Sequence[str] = ()
) -> tuple[list[Measurement], dict]:
    """Tests the best checkpoint of every run at every size; a line on the standard error tells each result.

    A size that a run cannot serve is reported there too and has no rows.

    Args:
        run_dirs: runs of one task on the same data.
        sizes: on the axis of the task, increasing.
        unit: how tables that are too small are resized, on a copy, see :meth:`relbias.encodings.Encoding.resize`; None
            leaves them as they are.
        changes: configs with which runs are tested once more, see :func:`relbias.cli.swap.swapped`.

    Returns:
        The rows, and the options of :func:`relbias.plot.plot_extrapolation`.

    Raises:
        ValueError: a run that cannot be loaded or compared with the others, a task or data that know no other sizes, or
            a size that they refuse; nothing has been evaluated then.
    """
    places = [run_dir.resolve() for run_dir in run_dirs]
    twice = next((run_dir for run_dir, place in zip(run_dirs, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice; give each run once")
    experiments = [_load(run_dir, run_folder.read_config(run_dir)) for run_dir in run_dirs]
    configs = [experiment.dump() for experiment in experiments]
    check_alike(run_dirs, configs)
    training_sizes = [_check(experiment, sizes) for experiment in experiments]
    for run_dir, training_size in zip(run_dirs, training_sizes, strict=True):
        if training_size != training_sizes[0]:
            raise ValueError(
                f"{run_dirs[0]} was trained at {training_sizes[0]} and {run_dir} at {training_size}; "
                "one picture compares runs that were trained at the same size"
            )
    tested = list(zip(run_dirs, experiments, configs, strict=True))
    for name in changes:
        others = [(run_dir, _load(run_dir, config)) for run_dir, config in swapped(name, run_dirs, configs)]
        tested += [(run_dir, experiment, experiment.dump()) for run_dir, experiment in others]
    rows = []
    lines = line_names([config for _, _, config in tested])
    for (run_dir, experiment, config), name in zip(tested, lines, strict=True):
        data, seed = _data(experiment, "test"), config.get("seed_everything", 0)
        what = f"{run_dir} with {name}" if changes else str(run_dir)
        for size in sizes:
            metrics = _at(experiment, data, size, unit, f"{what} at {size}:")
            rows += [Measurement(str(run_dir), name, seed, size, key, value) for key, value in metrics.items()]
    return rows, {"training_size": training_sizes[0], "label": experiments[0].model.extrapolation}


def _check(experiment: Experiment, sizes: Sequence[int]) -> int:
    """The size that a run was trained at; refuses sizes that its network or its data do not have at all."""
    task, data = experiment.model, experiment.datamodule
    if task.extrapolation is None:
        raise ValueError(f"{type(task).__name__} is not drawn at other sizes: it has no extrapolation")
    if not hasattr(data, "test_dataloader_at"):
        raise ValueError(f"{type(data).__name__} has no test_dataloader_at(size), which gives its test at another size")
    for size in sizes:
        task.check_size(size)
    data = _data(experiment, "fit", "test")
    for size in sizes:
        data.test_dataloader_at(size)
    return _size_of(task, data, _first(data.val_dataloader()))


def _size_of(task: Task, data: Any, batch: Any) -> int:
    return data.size_of(batch) if hasattr(data, "size_of") else task.size_of(batch)


def _data(experiment: Experiment, *stages: str) -> Any:
    """The data of a run, set up: a copy, so that those of many runs are not held at once."""
    data = copy.deepcopy(experiment.datamodule)
    data.prepare_data()
    for stage in stages:
        data.setup(stage)
    return data


def _load(run_dir: Path, config: dict[str, Any]) -> Experiment:
    """A configuration with the weights of a run and a Trainer that shows and writes nothing, on one device here."""
    config = {**config}
    config["trainer"] = {
        **(config.get("trainer") or {}),
        **{"accelerator": "auto", "devices": 1, "num_nodes": 1, "strategy": "auto"},
        **{"callbacks": None, "logger": False, "enable_progress_bar": False, "enable_model_summary": False},
    }
    experiment = build([(str(run_dir / run_folder.CONFIG), config)])
    run_folder.load_weights(experiment.model, run_dir / run_folder.BEST)
    return experiment


def _first(loader: Any) -> Any:
    loaders = loader if isinstance(loader, list | tuple) else [loader]
    batch = next((batch for loader in loaders for batch in loader), None)
    if batch is None:
        raise ValueError("the data has no batch, whose size would be read")
    return batch


def _at(experiment: Experiment, data: Any, size: int, unit: Unit | None, prefix: str) -> dict[str, float]:
    """The metrics of one run at one size, none where the run cannot serve it; tells either."""
    loader = data.test_dataloader_at(size)
    batch = _first(loader)
    found = _size_of(experiment.model, data, batch)
    if found != size:
        raise ValueError(f"{type(data).__name__}.test_dataloader_at({size}) gives batches of size {found}")
    try:
        model = fitting(experiment.model, batch, size, unit)
    except _REFUSALS as error:
        print(f"{prefix} left out: {_line(error)}", file=sys.stderr, flush=True)
        return {}
    try:
        results = experiment.trainer.test(model, dataloaders=loader, verbose=False)
    except MisconfigurationException as error:
        raise ValueError(_line(error)) from error
    metrics = {name.removeprefix(TEST): value for result in results for name, value in result.items()}
    drawn = experiment.model.extrapolation_metrics
    if drawn is not None:
        metrics = {name: metrics[name] for name in drawn}
    print(f"{prefix} {', '.join(f'{k} {v:.4f}' for k, v in metrics.items())}", file=sys.stderr, flush=True)
    return metrics


@torch.no_grad()
def fitting(task: Task, batch: Any, size: int, unit: Unit | None) -> Task:
    """A copy of the task that takes a batch, prepared for its size where it does not take it as it is.

    Args:
        task: with the weights loaded; stays as it is.
        batch: of the test at the size.
        size: on the axis of the task.
        unit: as in :func:`evaluate`.

    Raises:
        ValueError: the network cannot take the batch, or only with its tables resized and there is no unit.
    """
    model = copy.deepcopy(task).eval()
    try:
        model.check_batch(batch)
        return model
    except _REFUSALS as error:
        reason = _line(error)
    try:
        model.prepare_for_size(size, unit)
        model.check_batch(batch)
    except _REFUSALS as error:
        raise ValueError("; ".join(dict.fromkeys((reason, _line(error))))) from error
    return model


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
