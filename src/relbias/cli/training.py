"""Runs a training that is ready to begin or to continue, and records it in fit.json."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from relbias._extras import extra

with extra("train"):
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from relbias.cli import processes, resume, run_folder
    from relbias.cli.build import Experiment


def train(experiment: Experiment, run_dir: Path, checkpoint: Path | None, argv: Sequence[str]) -> dict[str, float]:
    """Trains to the end and writes fit.json.

    Args:
        experiment: with a Trainer for the run folder.
        run_dir: the run folder, with its config.yaml.
        checkpoint: what the training continues from; None from the beginning.
        argv: the arguments of ``relbias fit``, for the record.

    Returns:
        What was logged last, by name; empty in all processes but the first.

    Raises:
        ValueError: the training stopped; the message names the last good checkpoint and the command that continues.
        SystemExit: it was terminated (143) or interrupted (130); the same line was printed.
    """
    trainer = experiment.trainer
    is_first = trainer.is_global_zero
    try:
        with resume.locked(run_dir) if is_first else nullcontext():
            if is_first:
                resume.rewind(run_dir, checkpoint, experiment.dump())
            with processes.shared(run_dir):
                trainer.fit(
                    experiment.model,
                    datamodule=experiment.datamodule,
                    ckpt_path=checkpoint,
                    weights_only=None if checkpoint is None else True,
                )
            return _record(experiment, run_dir, argv) if is_first else {}
    except resume.LockedError:
        raise
    except OSError as error:
        reason = f"cannot write {error.filename}: {error.strerror}" if error.filename and error.strerror else error
        raise ValueError(f"{reason}; {run_folder.unfinished(run_dir)}") from error
    except (ValueError, MisconfigurationException) as error:
        raise ValueError(f"{error}; {run_folder.unfinished(run_dir)}") from error
    except SystemExit as error:  # Lightning's end after a signal, with which the process would seem to have succeeded
        if not trainer.interrupted:
            raise
        what, code = ("terminated", 143) if isinstance(error, SIGTERMException) else ("interrupted", 130)
        if is_first:
            print(f"relbias: error: {what}; {run_folder.unfinished(run_dir)}", file=sys.stderr)
        raise SystemExit(code) from None
    except Exception as error:  # a fault, such as the end of another process or of the device's memory
        error.add_note(run_folder.unfinished(run_dir))
        raise


def _record(experiment: Experiment, run_dir: Path, argv: Sequence[str]) -> dict[str, float]:
    trainer = experiment.trainer
    last = experiment.last
    if not (run_dir / run_folder.BEST).is_file():
        raise ValueError(
            f"the training ended before its first validation, so there is no {run_folder.BEST}; train longer or see "
            "trainer.check_val_every_n_epoch"
        )
    metrics = {**last.metrics, **{name: value.item() for name, value in trainer.callback_metrics.items()}}
    weights = run_folder.read_json(run_dir / run_folder.WEIGHTS)
    record = {
        "seconds": round(last.seconds, 3),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        **({"stopped_early": True} if trainer.should_stop else {}),
        "parameters": sum(p.numel() for p in experiment.model.parameters() if p.requires_grad),
        **metrics,
        "machine": "; ".join(last.machines),
        "commit": "; ".join(last.commits),
        "command": shlex.join(["relbias", "fit", *argv]),
        **({"resumed_after_epochs": last.resumed} if last.resumed else {}),
        **({"weights": weights} if weights else {}),
    }
    run_folder.write_json(run_dir / run_folder.FIT, record)
    return metrics
