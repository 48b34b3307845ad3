"""fit, validate, test and predict."""

import csv
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relbias._extras import extra

with extra("train"):
    import torch
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from relbias.cli import processes, run_folder
    from relbias.cli.arguments import parse
    from relbias.cli.build import build
    from relbias.cli.config import merge
    from relbias.cli.provenance import commit, machine
    from relbias.cli.trial import try_batch

USAGE = {
    "fit": """usage: relbias fit -c RECIPE [-c CONFIG ...] [--run_dir DIR] [--key value ...]

Trains and writes a run folder: config.yaml, metrics.csv, checkpoints/best.ckpt (lowest val/loss), checkpoints/last.ckpt
and fit.json (time, machine, number of parameters). Every key of the recipe can be given, such as --trainer.max_epochs 3
or --model.init_args.encoding shaw; later values win. The default folder is runs/RECIPE/ENCODING-seedSEED, with -2, -3
and so on where that exists.""",
    "validate": """usage: relbias validate RUN_DIR [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Evaluates checkpoints/best.ckpt on the validation split and prints the result. Whatever the training ran on, one device
is used, with the strategy auto, unless --trainer.devices, --trainer.num_nodes or --trainer.strategy say otherwise.""",
    "test": """usage: relbias test RUN_DIR [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Evaluates checkpoints/best.ckpt on the test split, prints the result and writes it to RUN_DIR/test.json, in place of
that of an earlier test; only a test without further options replaces one without. One device is used unless
--trainer.devices, --trainer.num_nodes or --trainer.strategy say otherwise.""",
    "predict": """usage: relbias predict RUN_DIR [--output FILE] [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Writes the predictions for the test split to RUN_DIR/predictions.csv, or to FILE; never overwrites a file. Runs on one
device.""",
}


def main(command: str, argv: Sequence[str]) -> int:
    """Runs one of the four commands.

    Args:
        command: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``.
        argv: its arguments.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: arguments, a configuration or a run folder that do not fit; nothing has been written then.
    """
    if "-h" in argv or "--help" in argv:
        print(USAGE[command])
    elif command == "fit":
        fit(argv)
    else:
        evaluate(command, argv)
    return 0


def fit(argv: Sequence[str]) -> Path:
    """Trains.

    Args:
        argv: the arguments of ``relbias fit``.

    Returns:
        The run folder.
    """
    arguments = parse(argv, options=["run_dir"])
    if arguments.positional or not arguments.configs:
        raise ValueError("fit takes -c RECIPE and further options, such as: relbias fit -c vision/digits")
    config = merge(arguments.sources)
    given = arguments.options.get("run_dir")
    run_dir = processes.inherited_run_dir() or (
        Path(given) if given else run_folder.default_path(arguments.configs[0], config)
    )
    experiment = build(arguments.sources, run_dir)
    processes.check(experiment.trainer, ["fit", *argv], has_run_dir=given is not None)
    if experiment.trainer.is_global_zero:  # it alone tries, writes and prints
        try_batch(experiment)
        run_folder.create(run_dir, experiment.dump())

    trainer, start = experiment.trainer, time.perf_counter()
    try:
        with processes.shared(run_dir):
            trainer.fit(experiment.model, datamodule=experiment.datamodule)
    except (ValueError, MisconfigurationException) as error:
        raise ValueError(f"{error}; the training in {run_dir} is not finished") from error
    except SIGTERMException:  # a SystemExit, with which the process would seem to have succeeded
        print(f"relbias: error: terminated; the training in {run_dir} is not finished", file=sys.stderr)
        raise SystemExit(143) from None
    if not trainer.is_global_zero:
        return run_dir
    if not (run_dir / run_folder.BEST).is_file():
        raise ValueError(
            f"the training in {run_dir} ended before its first validation, so there is no {run_folder.BEST}; "
            "train longer or see trainer.check_val_every_n_epoch"
        )
    record = {
        "seconds": round(time.perf_counter() - start, 1),
        "epochs": trainer.current_epoch,
        "parameters": sum(p.numel() for p in experiment.model.parameters() if p.requires_grad),
        **{name: value.item() for name, value in trainer.callback_metrics.items()},
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["relbias", "fit", *argv]),
    }
    run_folder.write_json(run_dir / run_folder.FIT, record)
    _print_table({name: record[name] for name in trainer.callback_metrics})
    print(f"the run is in {run_dir} (config.yaml, metrics.csv, checkpoints/best.ckpt); next: relbias test {run_dir}")
    return run_dir


def evaluate(command: str, argv: Sequence[str]) -> dict[str, float]:
    """Validates, tests or predicts with the best checkpoint of a run folder.

    Args:
        command: ``"validate"``, ``"test"`` or ``"predict"``.
        argv: its arguments.

    Returns:
        The metrics; empty for predict.
    """
    arguments = parse(argv, options=["output"] if command == "predict" else [], keys=["trainer"])
    if len(arguments.positional) != 1:
        raise ValueError(f"{command} takes one run folder, got {len(arguments.positional)}; relbias {command} RUN_DIR")
    for label, mapping in arguments.sources:
        if set(mapping) != {"trainer"}:
            raise ValueError(
                f"{label}: {command} takes the model and the data from the run folder; only trainer applies"
            )
    run_dir = Path(arguments.positional[0])
    config = run_folder.read_config(run_dir)
    output = Path(arguments.options.get("output", run_dir / run_folder.PREDICTIONS))
    if command == "predict" and output.exists():
        raise ValueError(f"{output} exists; give another file with --output or remove it")
    config["trainer"] = {**config.get("trainer", {}), **processes.one_device(config.get("trainer", {}))}
    experiment = build([(str(run_dir / run_folder.CONFIG), config), *arguments.sources])
    processes.check(experiment.trainer, [command, *argv], has_run_dir=True)
    if command == "predict" and experiment.trainer.world_size > 1:
        raise ValueError("predict writes the samples in their order, in one process; give --trainer.devices 1")
    run_folder.load_weights(experiment.model, run_dir / run_folder.BEST)

    function = getattr(experiment.trainer, command)
    options = {} if command == "predict" else {"verbose": False}
    try:
        results = function(experiment.model, datamodule=experiment.datamodule, **options)
    except MisconfigurationException as error:
        raise ValueError(str(error)) from error
    if command == "predict":
        write_predictions(results, output)
        print(f"the predictions are in {output}")
        return {}
    metrics = {name: value for result in results for name, value in result.items()}
    if not experiment.trainer.is_global_zero:
        return metrics
    _print_table(metrics)
    if command == "test":
        _record_test(metrics, [label for label, _ in arguments.sources], run_dir / run_folder.TEST)
    return metrics


def _record_test(metrics: dict[str, float], overrides: list[str], path: Path) -> None:
    earlier = run_folder.read_json(path)
    if overrides and earlier is not None and not earlier["overrides"]:
        print(f"{path} stays: it holds the result of a test without {', '.join(overrides)}")
        return
    run_folder.write_json(path, {**metrics, "overrides": overrides})
    print(f"the result is in {path}")


def write_predictions(batches: list[dict[str, torch.Tensor]], path: Path) -> None:
    """Writes what predict_step returned as CSV, a row per sample in the order of the data; never overwrites.

    Args:
        batches: for each batch a mapping from column names to tensors (B,).
        path: the file.
    """
    columns = {name: torch.cat([batch[name] for batch in batches]).tolist() for name in batches[0]}
    try:
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["sample", *columns])
            writer.writerows([position, *row] for position, row in enumerate(zip(*columns.values(), strict=True)))
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}; give another file with --output") from None


def _print_table(metrics: dict[str, Any]) -> None:
    width = max((len(name) for name in metrics), default=0)
    for name, value in metrics.items():
        print(f"{name:<{width}}  {value:.4f}")
