"""A command in several processes: whether it can start, and the run folder that they share.

Lightning starts the other processes of a machine by running the command line again, with LOCAL_RANK in the environment;
torchrun starts all at once. Either way each process goes through the whole command, and only the first may write.
"""

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from torch.distributed import is_torchelastic_launched

_RUN_DIR = "RELBIAS_RUN_DIR"


def inherited_run_dir() -> Path | None:
    """The run folder that :func:`shared` handed down, or None in a process that nobody of ours has started."""
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"
    return None if is_first or _RUN_DIR not in os.environ else Path(os.environ[_RUN_DIR])


@contextmanager
def shared(run_dir: Path) -> Generator[None, None, None]:
    """Hands the run folder down to the processes that are started inside the block.

    Args:
        run_dir: the run folder.

    Example:
        >>> with shared(Path("runs/digits/shaw-seed0")):
        ...     os.environ["RELBIAS_RUN_DIR"]
        'runs/digits/shaw-seed0'
        >>> "RELBIAS_RUN_DIR" in os.environ
        False
    """
    before = os.environ.get(_RUN_DIR)
    os.environ[_RUN_DIR] = str(run_dir)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_RUN_DIR]
        else:
            os.environ[_RUN_DIR] = before


def check(trainer: Trainer, words: Sequence[str], has_run_dir: bool) -> None:
    """Refuses, before anything is written, what several processes could not do together.

    Args:
        trainer: as it has been built; nothing is started yet.
        words: the command and its arguments.
        has_run_dir: whether the arguments name the run folder.

    Raises:
        ValueError: torchrun started another number of processes than the Trainer has; the other processes would run
            another command than this one; or each process would choose a run folder of its own.
    """
    asked = trainer.num_devices * trainer.num_nodes
    started = int(os.environ["WORLD_SIZE"]) if is_torchelastic_launched() else asked
    if started != asked:
        raise ValueError(
            f"torchrun started {started} processes, and the configuration makes {asked}; give --trainer.devices "
            "(processes of a machine) and --trainer.num_nodes (machines) whose product is the number of processes"
        )
    if asked == 1:
        return
    environment = getattr(trainer.strategy, "cluster_environment", None)
    is_started_by_others = environment is not None and environment.creates_processes_externally
    if not is_started_by_others and sys.argv[1:] != list(words):
        raise ValueError(
            f"{words[0]} would run in {asked} processes, which are started by running the command line again, and that "
            f"is another one; call `relbias {words[0]}` itself, or give --trainer.devices 1"
        )
    if (is_started_by_others or trainer.num_nodes > 1) and not has_run_dir and inherited_run_dir() is None:
        raise ValueError(f"the {asked} processes would not choose the same run folder; give one with --run_dir")


def one_device(trainer: dict[str, Any]) -> dict[str, Any]:
    """The Trainer's arguments that bring the evaluation of a run into one process on one device.

    Args:
        trainer: the Trainer's arguments of the run.

    Returns:
        The values of devices, num_nodes and strategy: of a list of devices the first.

    Example:
        >>> one_device({"strategy": "ddp", "devices": [1, 2], "num_nodes": 4})
        {'devices': [1], 'num_nodes': 1, 'strategy': 'auto'}
    """
    devices = trainer.get("devices")
    return {"devices": devices[:1] if isinstance(devices, list) else 1, "num_nodes": 1, "strategy": "auto"}
