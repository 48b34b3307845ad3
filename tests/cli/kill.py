"""A training that kills itself with SIGKILL: python kill.py MOMENT COUNT fit ..., at call COUNT + 1 of the moment."""

import os
import signal
import sys
from pathlib import Path

from relbias.cli import atomic, last_checkpoint, metrics_csv, training
from relbias.cli import main as cli


def kill_at(owner, name, count, before=lambda *args: None):
    """Lets a function be called COUNT times and kills the process at the next call."""
    original, calls = getattr(owner, name), []

    def call(*args, **kwargs):
        calls.append(name)
        if len(calls) > count:
            before(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, call)


def half(path, data):
    """What is on the disk when a kill falls into the writing of a file."""
    path.with_name(f".{path.name}.part").write_bytes(data[: len(data) // 2])


def half_row(path, text):
    with path.open("a") as file:
        file.write(text[: len(text) // 2])


def main(moment, count):
    if moment == "batch":
        kill_at(last_checkpoint.LastCheckpoint, "on_train_batch_end", count)
    elif moment == "validation":
        kill_at(last_checkpoint.LastCheckpoint, "on_validation_start", count)
    elif moment == "epoch":
        kill_at(last_checkpoint.LastCheckpoint, "on_train_epoch_start", count)
    elif moment == "write":  # of checkpoints, and of metrics.csv where a column is new
        kill_at(atomic, "write_atomic", count, half)
        metrics_csv.write_atomic = atomic.write_atomic
    elif moment == "rename":
        kill_at(Path, "replace", count)
    elif moment == "row":
        kill_at(metrics_csv, "_append", count, half_row)
    else:
        assert moment == "record"
        kill_at(training, "_record", count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    sys.exit(cli.main(sys.argv[3:]))
