"""fit, validate, test, predict and check."""

import csv
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from relbias import resources
from relbias._extras import extra

with extra("train"):
    import torch

    from relbias.cli import run_folder
    from relbias.cli.arguments import parse, read
    from relbias.cli.build import Experiment, build
    from relbias.cli.config import merge
    from relbias.cli.provenance import commit, machine

USAGE = {
    "fit": """usage: relbias fit -c RECIPE [-c CONFIG ...] [--run_dir DIR] [--key value ...]

Trains and writes a run folder: config.yaml, metrics.csv, checkpoints/best.ckpt (lowest val/loss), checkpoints/last.ckpt
and fit.json (time, machine, number of parameters). Every key of the recipe can be given, such as --trainer.max_epochs 3
or --model.init_args.encoding shaw; later values win. The default folder is runs/RECIPE/ENCODING-seedSEED, with -2, -3
and so on where that exists.""",
    "validate": """usage: relbias validate RUN_DIR [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Evaluates checkpoints/best.ckpt on the validation split and prints the result.""",
    "test": """usage: relbias test RUN_DIR [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Evaluates checkpoints/best.ckpt on the test split, prints the result and writes it to RUN_DIR/test.json, in place of
that of an earlier test.""",
    "predict": """usage: relbias predict RUN_DIR [--output FILE] [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Writes the predictions for the test split to RUN_DIR/predictions.csv, or to FILE; never overwrites a file.""",
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
    run_dir = Path(given) if given else run_folder.default_path(arguments.configs[0], config)
    try:
        experiment = build(config, run_dir)
    except ValueError as error:
        raise ValueError(f"{' with '.join(arguments.configs)}: {error}") from None
    run_folder.create(run_dir, experiment.dump())

    trainer, start = experiment.trainer, time.perf_counter()
    trainer.fit(experiment.model, datamodule=experiment.datamodule)
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
    arguments = parse(argv, options=["output"] if command == "predict" else [])
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
    experiment = build(merge([(str(run_dir / run_folder.CONFIG), config), *arguments.sources]))
    run_folder.load_weights(experiment.model, run_dir / run_folder.BEST)

    if command == "predict":
        batches = experiment.trainer.predict(experiment.model, datamodule=experiment.datamodule)
        write_predictions(cast(list, batches), output)
        print(f"the predictions are in {output}")
        return {}
    function = getattr(experiment.trainer, command)
    results = function(experiment.model, datamodule=experiment.datamodule, verbose=False)
    metrics = {name: value for result in results for name, value in result.items()}
    _print_table(metrics)
    if command == "test":
        record = {**metrics, "overrides": [label for label, _ in arguments.sources]}
        run_folder.write_json(run_dir / run_folder.TEST, record)
        print(f"the result is in {run_dir / run_folder.TEST}")
    return metrics


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


def check(names: Sequence[str]) -> int:
    """Builds the task and the data of recipes; a config is laid on the first recipe that it fits.

    Args:
        names: recipes and configs, by name or path; all where empty.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: one that cannot be built; the message says why for each.
    """
    failures = []
    for name in names or [*resources.names("recipes"), *resources.names("configs")]:
        try:
            print(_check_one(name))
        except ValueError as error:
            failures.append(str(error))
    if failures:
        raise ValueError("; ".join(failures))
    return 0


def _check_one(name: str) -> str:
    if "class_path" in read(name).get("model", {}):
        build_only([name])
        return f"ok  {name}"
    refusals = []
    for recipe in resources.names("recipes"):
        merge([(label, read(label)) for label in (recipe, name)])  # a key or encoding that does not exist is an error
        try:
            build_only([recipe, name])
        except ValueError as error:  # what the recipe's own classes refuse, such as an encoding for sequences on a grid
            refusals.append(f"{recipe}: {error}")
        else:
            return f"ok  {name} on {recipe}"
    return f"--  {name} fits none of the recipes ({'; '.join(refusals)})"


def build_only(names: Sequence[str], overrides: Sequence[tuple[str, dict[str, Any]]] = ()) -> Experiment:
    """Merges and builds without a Trainer.

    Args:
        names: a recipe and the configs on it.
        overrides: further sources, see :func:`relbias.cli.config.merge`.
    """
    sources = [(name, read(name)) for name in names]
    return build(merge([*sources, *overrides]), with_trainer=False)
