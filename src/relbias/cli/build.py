"""Builds the task, the data and the Trainer of a configuration, through LightningCLI."""

import inspect
import logging
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from relbias._extras import extra
from relbias.cli.atomic import AtomicCheckpointIO
from relbias.cli.config import Source, holds, merge, origin
from relbias.cli.keys import find_class
from relbias.cli.last_checkpoint import LastCheckpoint
from relbias.cli.metrics_csv import MetricsCSV
from relbias.cli.summary import summarize

with extra("train"):
    import yaml
    from jsonargparse import ArgumentError
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch import LightningDataModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
    from lightning.pytorch.loggers import Logger
    from lightning.pytorch.plugins.io import TorchCheckpointIO

    from relbias.models.pretrained import skip_pretrained
    from relbias.tasks import NaNGuard, Task


class Experiment(LightningCLI):
    """A configuration and what is built from it: ``config``, ``model``, ``datamodule`` and ``trainer``.

    For a run folder ``last`` is the callback that saves last.ckpt.

    Args:
        config: a merged configuration, see :func:`relbias.cli.config.merge`.
        run_dir: where a training writes; None builds a Trainer that writes nothing.
        with_trainer: whether to build a Trainer at all.
    """

    def __init__(self, config: dict[str, Any], run_dir: Path | None = None, with_trainer: bool = True) -> None:
        self.run_dir = run_dir
        self.with_trainer = with_trainer
        super().__init__(
            Task,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=None,  # the run folder writes the configuration, before anything else
            seed_everything_default=0,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,  # it would need save_hyperparameters
            parser_kwargs={"exit_on_error": False},
            args=config,
            run=False,
        )
        if hasattr(self.datamodule, "adapt_to"):
            self.datamodule.adapt_to(self.model)

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Takes the merged configuration, never the process's own command line."""
        self.config = parser.parse_object(args)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer | None:
        """The Trainer, with the loggers and checkpoints of a run folder, or without any."""
        if not self.with_trainer:
            return None
        if self.run_dir is None:
            return super().instantiate_trainer(logger=False, enable_checkpointing=False)
        loggers = [logger for logger in _as_list(self.config_init["trainer"]["logger"]) if isinstance(logger, Logger)]
        self.last = LastCheckpoint(self.run_dir / "checkpoints" / "last.ckpt")
        self.config_init["trainer"]["callbacks"] = [
            *_as_list(self.config_init["trainer"]["callbacks"]),
            NaNGuard(),
            ModelCheckpoint(
                dirpath=self.run_dir / "checkpoints",
                filename="best",
                monitor="val/loss",
                enable_version_counter=False,
            ),
            self.last,
        ]
        metrics = MetricsCSV(self.run_dir / "metrics.csv")
        trainer = super().instantiate_trainer(logger=[metrics, *loggers], default_root_dir=str(self.run_dir))
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # not one that the configuration names
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()
        return trainer

    def dump(self) -> dict[str, Any]:
        """The complete configuration, defaults included, as plain values; enough to run it again.

        What the data module has `found` in its data, once it is set up, stands among its arguments.
        """
        config = yaml.safe_load(self.parser.dump(self.config, skip_none=False, format="yaml"))
        config["data"].setdefault("init_args", {}).update(getattr(self.datamodule, "found", {}))
        for logger in _loggers(config):
            if logger.get("init_args", {}).get("save_dir") == str(self.run_dir):  # it moves with the run folder
                del logger["init_args"]["save_dir"]
        return config


def build(
    sources: Sequence[Source], run_dir: Path | None = None, with_trainer: bool = True, with_pretrained: bool = False
) -> Experiment:
    """Merges a configuration and builds everything that it names; nothing is written.

    A data module with the method `adapt_to` is given the task.

    Args:
        sources: see :func:`relbias.cli.config.merge`.
        run_dir: where a training will write; a logger without save_dir writes there as well.
        with_trainer: whether to build a Trainer, which needs the device that the configuration asks for.
        with_pretrained: whether networks fetch the trained weights that they ask for; where a checkpoint brings them,
            or nothing is run, there is no need.

    Raises:
        ValueError: a value of the wrong type, one that a constructor refuses, or a package that is not installed; the
            message begins with the source of the value, or with all of them where it could be any.
    """
    config = merge(sources)
    for key in ("model", "data"):
        if "class_path" not in config.get(key, {}):
            raise ValueError(
                f"the configuration has no {key}.class_path; give a recipe first, such as -c vision/digits"
            )
    for logger in _loggers(config):
        if "save_dir" in inspect.signature(find_class(logger["class_path"], "trainer.logger")).parameters:
            logger["init_args"] = {"save_dir": str(run_dir), **logger.get("init_args", {})}
    _quieten()
    try:
        with nullcontext() if with_pretrained else skip_pretrained():
            return Experiment(config, run_dir, with_trainer)
    except ArgumentError as error:
        key, text = summarize(str(error))
        known = key if key and holds(config, key) else ""  # in a mapping of encodings jsonargparse leaves a part out
        raise ValueError(f"{origin(sources, known)}{f'{key}: ' if key else ''}{text}") from None
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name or error} is not installed; install it, or leave out what needs it") from None
    except (ValueError, TypeError, MisconfigurationException) as error:
        cause = error
        while cause.__cause__ is not None:  # what the constructor said, below what jsonargparse made of it
            cause = cause.__cause__
        raise ValueError(f"{origin(sources)}{' '.join(str(cause).split())}") from None


def _quieten() -> None:
    """Keeps Lightning's advertisements, and warnings about what is meant here, away from the results."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",  # the data sets here are small
        ".*Checkpoint directory .* exists and is not empty.*",  # a training is continued
        ".*treespec, LeafSpec.*",  # Lightning's own call
    ):
        warnings.filterwarnings("ignore", message)


def _as_list(value: Any) -> list:
    """Where the Trainer takes one or several."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _loggers(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The loggers of a configuration that are given by class_path."""
    given = _as_list(config.get("trainer", {}).get("logger"))
    return [entry for entry in given if isinstance(entry, dict) and "class_path" in entry]
