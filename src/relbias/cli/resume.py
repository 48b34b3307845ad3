"""Continuing a training: what may be given, where it stands, and a lock against two at once."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relbias.cli import run_folder
from relbias.cli.arguments import Arguments
from relbias.cli.atomic import write_atomic
from relbias.cli.metrics_csv import cut, read_rows

LOCK = ".lock"


class LockedError(ValueError):
    """Another process is training in the run folder."""


def find_run_dir(arguments: Arguments) -> Path:
    """The run folder of ``relbias fit -c RUN_DIR/config.yaml --ckpt_path ...``.

    Raises:
        ValueError: the first ``-c`` is not the configuration of a run folder, or something else than the Trainer would
            be changed.
    """
    config = Path(arguments.configs[0])
    if config.name != run_folder.CONFIG or not config.is_file():
        raise ValueError(
            f"--ckpt_path continues a run, and {config} is not the configuration of a run folder; give "
            "-c RUN_DIR/config.yaml first, or begin a new run from the weights of another: --weights RUN_DIR"
        )
    for option in ("run_dir", "weights"):
        if option in arguments.options:
            raise ValueError(f"--ckpt_path continues the run in {config.parent}, so --{option} does not apply")
    for label, mapping in arguments.sources:
        if label != str(arguments.configs[0]) and set(mapping) != {"trainer"}:
            raise ValueError(
                f"{label}: a run is continued with its own model, data and seed, and only trainer applies; for a new "
                f"run from its weights give --weights {config.parent} in place of --ckpt_path"
            )
    return config.parent


def find_checkpoint(run_dir: Path, given: str) -> Path | None:
    """The checkpoint to continue from.

    Args:
        run_dir: the run folder.
        given: ``last`` or a path.

    Returns:
        The checkpoint, or None where the training was stopped before the first and begins again.

    Raises:
        ValueError: it is not one of this run, cannot be read, was saved inside an epoch, or is missing from a run that
            has finished an epoch.
    """
    path = run_dir / run_folder.LAST if given == "last" else Path(given)
    if given == "last" and not path.exists():
        has_epochs = any(row.get("epoch") not in ("", "0", None) for row in read_rows(run_dir / run_folder.METRICS))
        if has_epochs or (run_dir / run_folder.FIT).exists():
            raise ValueError(
                f"there is no {path}, and the run has finished its first epoch; put the file back, or continue from "
                f"another checkpoint of the run: --ckpt_path {run_dir / run_folder.BEST}"
            )
        return None
    if given != "last" and not path.resolve().is_relative_to(run_dir.resolve()):
        raise ValueError(
            f"{path} is not a checkpoint of the run in {run_dir}; give last or one of its own, or begin a new run from "
            "its weights: --weights"
        )
    checkpoint = run_folder.read_checkpoint(path)
    try:
        progress = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]
        is_whole = progress["processed"] == progress["started"] > 0
    except KeyError:
        raise ValueError(f"{path} holds only weights; give --ckpt_path last") from None
    if not is_whole:
        raise ValueError(f"{path} was saved inside an epoch, and a training continues at the end of one; give last")
    return path


def is_complete(record: dict[str, Any] | None, trainer: dict[str, Any], is_changed: bool) -> bool:
    """Whether a training has nothing left to do.

    Args:
        record: what fit.json holds.
        trainer: the Trainer's arguments.
        is_changed: whether some of them were given anew, with which one that a callback has stopped may go on.

    Example:
        >>> is_complete({"epochs": 3, "steps": 30}, {"max_epochs": 3, "max_steps": -1}, is_changed=True)
        True
    """
    if record is None:
        return False
    reached = [(record.get(key, 0), trainer[f"max_{key}"]) for key in ("epochs", "steps")]
    is_reached = any(limit not in (None, -1) and done >= limit for done, limit in reached)
    return is_reached or (record.get("stopped_early", False) and not is_changed)


def rewind(run_dir: Path, checkpoint: Path | None, config: dict[str, Any]) -> None:
    """Takes a run folder back to a checkpoint, or to its beginning: rows and records of what comes after go.

    Args:
        run_dir: the run folder.
        checkpoint: see :func:`find_checkpoint`; another than last.ckpt takes its place, so that a kill before the next
            one leaves no gap in the rows.
        config: the complete configuration of what follows.

    Raises:
        ValueError: metrics.csv is damaged; nothing has been written.
        OSError: the folder cannot be written.
    """
    last = run_dir / run_folder.LAST
    if checkpoint is None:
        (run_dir / run_folder.METRICS).unlink(missing_ok=True)
    else:
        step = run_folder.read_checkpoint(checkpoint)["loops"]["fit_loop"]["epoch_loop.state_dict"][
            "_batches_that_stepped"
        ]
        read_rows(run_dir / run_folder.METRICS)
        if checkpoint.resolve() != last.resolve():
            write_atomic(last, checkpoint.read_bytes())
        cut(run_dir / run_folder.METRICS, step)
    begun = run_dir / run_folder.BEGUN
    if checkpoint is None:
        begun.unlink(missing_ok=True)
    if config != run_folder.read_config(run_dir):
        if checkpoint is not None and not begun.exists():
            write_atomic(begun, (run_dir / run_folder.CONFIG).read_bytes())
        run_folder.write_config(run_dir, config)
    for name in (run_folder.FIT, run_folder.TEST):  # of a shorter training
        (run_dir / name).unlink(missing_ok=True)


@contextmanager
def locked(run_dir: Path) -> Generator[None, None, None]:
    """Keeps another training out of a run folder; a killed process gives the lock back.

    Raises:
        LockedError: another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with (run_dir / LOCK).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock, which the processes of a loader would inherit
        except BlockingIOError:
            raise LockedError(f"another process is training in {run_dir}; wait until it ends") from None
        except OSError:  # a file system without locks
            pass
        yield
