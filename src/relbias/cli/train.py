"""fit, validate, test and predict."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relbias._extras import extra

with extra("train"):
    import torch
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from relbias.cli import processes, resume, run_folder, training, weights
    from relbias.cli.arguments import Arguments, parse
    from relbias.cli.build import Experiment, build
    from relbias.cli.config import merge
    from relbias.cli.inputs import predict_inputs, probability, write_csv
    from relbias.cli.trial import try_batch

USAGE = {
    "fit": """usage: relbias fit -c RECIPE [-c CONFIG ...] [--run_dir DIR] [--weights RUN_DIR] [--key value ...]
       relbias fit -c RUN_DIR/config.yaml --ckpt_path last [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Trains and writes a run folder: config.yaml, metrics.csv, checkpoints/best.ckpt (lowest val/loss), checkpoints/last.ckpt
(the end of the last whole epoch) and fit.json (time, machine, number of parameters). Every key of the recipe can be
given, such as --trainer.max_epochs 3 or --model.init_args.encoding shaw; later values win. The default folder is
runs/RECIPE/ENCODING-seedSEED, with -2, -3 and so on where that exists.

--weights begins a new run with the weights of another: of its best.ckpt, or of a .ckpt file. What is missing there, not
used here, or of another shape is left out and listed.

--ckpt_path last continues a run that was stopped or killed, in its own folder, from checkpoints/last.ckpt; a path takes
another checkpoint of the run, and rows of metrics.csv from later epochs are replaced. Weights, optimizer, schedule and
random states continue, so that on the same processor the losses are those of a training that never stopped. A run that
was stopped in its first epoch begins again; one that is complete stays as it is. Of the configuration only trainer can
be changed, and config.yaml follows (begun.yaml keeps that of the beginning): with a greater --trainer.max_epochs
training goes on, and the learning rate follows the schedule of the longer training from there.""",
    "validate": """usage: relbias validate RUN_DIR [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Evaluates checkpoints/best.ckpt on the validation split and prints the result. Whatever the training ran on, one device
is used, with the strategy auto, unless --trainer.devices, --trainer.num_nodes or --trainer.strategy say otherwise.""",
    "test": """usage: relbias test RUN_DIR [-c trainer/CONFIG ...] [--trainer.KEY value ...]

Evaluates checkpoints/best.ckpt on the test split, prints the result and writes it to RUN_DIR/test.json, in place of
that of an earlier test; only a test without further options replaces one without. One device is used unless
--trainer.devices, --trainer.num_nodes or --trainer.strategy say otherwise.""",
    "predict": """usage: relbias predict RUN_DIR [--output FILE] [-c trainer/CONFIG ...] [--trainer.KEY value ...]
       relbias predict RUN_DIR INPUT ... [--threshold P] [--output FILE] [-c CONFIG ...] [--trainer.KEY value ...]

Writes the predictions for the test split to RUN_DIR/predictions.csv, or to FILE; never overwrites a file. Runs on one
device.

With INPUT, files and folders of one's own, it prints what the network finds in them, a line each, where its probability
is at least P, by default a high one, and with --output writes the same to FILE as CSV. What cannot be read is named,
and the rest is read. The data that the network was trained on is not needed. Only some recipes take INPUT; the others
say which do.""",
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
    arguments = parse(argv, options=["run_dir", "ckpt_path", "weights"])
    if arguments.positional or not arguments.configs:
        raise ValueError("fit takes -c RECIPE and further options, such as: relbias fit -c vision/digits")
    if "ckpt_path" in arguments.options:
        return _continue(arguments, argv)
    config = merge(arguments.sources)
    given = arguments.options.get("run_dir")
    run_dir = processes.inherited_run_dir() or (
        Path(given) if given else run_folder.default_path(arguments.configs[0], config)
    )
    experiment = build(arguments.sources, run_dir, with_pretrained=True)
    processes.check(experiment.trainer, ["fit", *argv], has_run_dir=given is not None)
    loaded = None
    if "weights" in arguments.options:
        loaded = weights.load_fitting(experiment.model, Path(arguments.options["weights"]))
    if experiment.trainer.is_global_zero:  # it alone tries, writes and prints
        try_batch(experiment)
        run_folder.create(run_dir, experiment.dump())
        if loaded is not None:
            run_folder.write_json(run_dir / run_folder.WEIGHTS, loaded)
            print(weights.describe(loaded))
    return _train(experiment, run_dir, None, argv)


def _continue(arguments: Arguments, argv: Sequence[str]) -> Path:
    """Goes on with a training in its own run folder."""
    run_dir = resume.find_run_dir(arguments)
    own = run_folder.read_config(run_dir)
    begins_again = arguments.options["ckpt_path"] == "last" and not (run_dir / run_folder.LAST).exists()
    experiment = build(arguments.sources, run_dir, with_pretrained=begins_again)
    config = experiment.dump()
    record = run_folder.read_json(run_dir / run_folder.FIT)
    if resume.is_complete(record, config["trainer"], is_changed=len(arguments.sources) > 1):
        print(f"the training in {run_dir} is complete; to train longer give --trainer.max_epochs")
        return run_dir
    processes.check(experiment.trainer, ["fit", *argv], has_run_dir=True)
    checkpoint = resume.find_checkpoint(run_dir, arguments.options["ckpt_path"])
    if checkpoint is not None:
        run_folder.check_fits(experiment.model, run_folder.read_checkpoint(checkpoint)["state_dict"], checkpoint)
    else:
        if not config["trainer"].keys() <= own.get("trainer", {}).keys():
            raise ValueError(
                f"{run_dir} is not a run folder: {run_folder.CONFIG} is not complete; give it without --ckpt_path"
            )
        loaded = run_folder.read_json(run_dir / run_folder.WEIGHTS)
        if loaded is not None:
            weights.load_fitting(experiment.model, Path(loaded["checkpoint"]))
    if experiment.trainer.is_global_zero:
        try_batch(experiment)
        if checkpoint is None:
            print(f"the training in {run_dir} was stopped before its first checkpoint and begins again")
        else:
            epoch = run_folder.read_checkpoint(checkpoint)["epoch"]
            print(f"the training in {run_dir} continues after epoch {epoch} from {checkpoint}")
    return _train(experiment, run_dir, checkpoint, argv)


def _train(experiment: Experiment, run_dir: Path, checkpoint: Path | None, argv: Sequence[str]) -> Path:
    metrics = training.train(experiment, run_dir, checkpoint, argv)
    if experiment.trainer.is_global_zero:
        _print_table(metrics)
        print(
            f"the run is in {run_dir} (config.yaml, metrics.csv, checkpoints/best.ckpt); next: relbias test {run_dir}"
        )
    return run_dir


def evaluate(command: str, argv: Sequence[str]) -> dict[str, float]:
    """Validates, tests or predicts with the best checkpoint of a run folder.

    Args:
        command: ``"validate"``, ``"test"`` or ``"predict"``.
        argv: its arguments.

    Returns:
        The metrics; empty for predict.
    """
    is_predict = command == "predict"
    arguments = parse(argv, options=["output", "threshold"] if is_predict else [], keys=["trainer"])
    if not arguments.positional or (len(arguments.positional) > 1 and not is_predict):
        raise ValueError(f"{command} takes one run folder, got {len(arguments.positional)}; relbias {command} RUN_DIR")
    for label, mapping in arguments.sources:
        if set(mapping) != {"trainer"}:
            raise ValueError(
                f"{label}: {command} takes the model and the data from the run folder; only trainer applies"
            )
    run_dir, inputs = Path(arguments.positional[0]), arguments.positional[1:]
    config = run_folder.read_config(run_dir)
    output = Path(arguments.options.get("output", run_dir / run_folder.PREDICTIONS))
    if is_predict and output.exists() and (not inputs or "output" in arguments.options):
        raise ValueError(f"{output} exists; give another file with --output or remove it")
    threshold = probability(arguments.options.get("threshold"))
    if threshold is not None and not inputs:
        raise ValueError("--threshold is for inputs: relbias predict RUN_DIR INPUT ... --threshold P")
    config["trainer"] = {**config.get("trainer", {}), **processes.one_device(config.get("trainer", {}))}
    if inputs and not sys.stdout.isatty():  # where a progress bar would stand among the lines
        config["trainer"]["enable_progress_bar"] = False
    experiment = build([(str(run_dir / run_folder.CONFIG), config), *arguments.sources])
    processes.check(experiment.trainer, [command, *argv], has_run_dir=True)
    if is_predict and experiment.trainer.world_size > 1:
        raise ValueError("predict writes the samples in their order, in one process; give --trainer.devices 1")
    checkpoint = run_folder.load_weights(experiment.model, run_dir / run_folder.BEST)
    if inputs:
        state = checkpoint.get(type(experiment.datamodule).__qualname__)  # where Lightning puts it
        columns, findings = predict_inputs(experiment, state, inputs, threshold)
        if "output" in arguments.options:
            write_csv(output, columns, findings)
            print(f"the predictions are in {output}", file=sys.stderr)
        return {}

    function = getattr(experiment.trainer, command)
    options = {} if is_predict else {"verbose": False}
    try:
        results = function(experiment.model, datamodule=experiment.datamodule, **options)
    except MisconfigurationException as error:
        raise ValueError(str(error)) from error
    if is_predict:
        write_predictions(results, output, getattr(experiment.datamodule, "classes", None))
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


def write_predictions(batches: list[dict[str, Any]], path: Path, classes: Sequence[str] | None = None) -> None:
    """Writes what predict_step returned as CSV, a row per sample in the order of the data; never overwrites.

    Args:
        batches: for each batch a mapping from column names to tensors (B,) or lists of B strings.
        path: the file.
        classes: the names that stand in the columns label and prediction in place of numbers, where there are names.
    """
    columns = {name: _column([batch[name] for batch in batches]) for name in batches[0]}
    for name in ("label", "prediction"):
        if classes is not None and name in columns:
            columns[name] = [classes[number] for number in columns[name]]
    rows = ([position, *row] for position, row in enumerate(zip(*columns.values(), strict=True)))
    write_csv(path, ["sample", *columns], rows)


def _column(parts: list[Any]) -> list[Any]:
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(parts).tolist()
    return [value for part in parts for value in part]


def _print_table(metrics: dict[str, Any]) -> None:
    width = max((len(name) for name in metrics), default=0)
    for name, value in metrics.items():
        print(f"{name:<{width}}  {value:.4f}")
