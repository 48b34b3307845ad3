"""predict on files of one's own, for data that reads such."""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from relbias import resources
from relbias._extras import MissingExtraError, extra

with extra("train"):
    from relbias.cli.arguments import read
    from relbias.cli.build import Experiment
    from relbias.cli.keys import find_class


def predict_inputs(
    experiment: Experiment, state: Any, paths: Sequence[str], threshold: float | None
) -> tuple[tuple[str, ...], list[Any]]:
    """What a network finds in a user's files, each on a line of its own; notices go to the standard error.

    The data module has `read_inputs(paths)`, which needs what the training has found and nothing else of its data: that
    is what its `state_dict` put into the checkpoint. What it returns has

    - `notices`: lines about what cannot be read or is read in another way.
    - `__iter__()`: batches for the task's `predict_step`; a Trainer is given it as a dataloader.
    - `columns`: of what is found.
    - `findings(answers, threshold)`: tuples with these columns whose `str` is a line; `answers` are those of
      `predict_step`, in order, and `threshold` is a probability, or None for the data's own.
    - `summary(findings)`: a line.

    Args:
        experiment: with the weights of the run.
        state: of the data module, from the checkpoint; None where there is none, and the data of the training is read.
        paths: files and folders.
        threshold: the least probability of what is told.

    Returns:
        The columns, and the findings.

    Raises:
        ValueError: the data reads no files of a user's.
    """
    datamodule: Any = experiment.datamodule
    if not _reads_inputs(type(datamodule)):
        raise ValueError(
            f"{type(datamodule).__name__} takes no input; leave out {paths[0]} for the test split, or give a run of "
            f"{_recipes_with_inputs()}"
        )
    if state is None:
        datamodule.setup("predict")  # which finds it in the data of the training
    else:
        datamodule.load_state_dict(state)
    inputs = datamodule.read_inputs(paths)
    for notice in inputs.notices:
        print(notice, file=sys.stderr)
    answers = experiment.trainer.predict(experiment.model, dataloaders=inputs)
    findings = inputs.findings(answers or [], threshold)
    for finding in findings:
        print(finding)
    print(inputs.summary(findings), file=sys.stderr)
    return inputs.columns, findings


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table; never overwrites.

    Raises:
        ValueError: the file exists, or cannot be written.
    """
    try:
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}; give another file with --output") from None


def probability(text: str | None) -> float | None:
    """The value of --threshold.

    Example:
        >>> probability("0.9")
        0.9
    """
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"--threshold is {text}, expected a probability from 0 to 1")
    return value


def _reads_inputs(cls: Any) -> bool:
    return hasattr(cls, "read_inputs")


def _recipes_with_inputs() -> str:
    found = []
    for name in resources.names("recipes"):
        try:
            if _reads_inputs(find_class(read(name)["data"]["class_path"], "data")):
                found.append(name)
        except MissingExtraError:  # a recipe that cannot be run here
            continue
    return " or ".join(found)
