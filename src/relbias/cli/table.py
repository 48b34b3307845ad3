"""table: runs a recipe with several encodings and seeds, and writes the results table into the recipe's README."""

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relbias import resources

USAGE = """usage: relbias table RECIPE [--seeds N] [-c encoding/CONFIG ...] [-c CONFIG ...] [--key value ...]

Trains and tests the recipe with its own encoding and with that of every -c that sets model.init_args.encoding, each
with the seeds 0 to N - 1 (default 3), and writes the table between the markers in README.md beside the recipe. Other
configs and keys apply to every run. Runs lie where `relbias fit` puts them; a run that is finished and has the same
configuration is not repeated."""

ENCODING = "model.init_args.encoding"
METRICS = {"centred": "test/accuracy", "moved": "test/accuracy_moved"}


def main(argv: Sequence[str]) -> int:
    """Runs what is missing and writes the table.

    Args:
        argv: the arguments of ``relbias table``.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: arguments that do not fit, or a run that cannot start; what has been finished is kept.
    """
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return 0
    from relbias.cli.arguments import parse

    arguments = parse(argv, options=["seeds"])
    if len(arguments.positional) != 1:
        raise ValueError("table takes one recipe, such as: relbias table vision/digits --seeds 3 -c encoding/table")
    recipe = arguments.positional[0]
    seeds = arguments.options.get("seeds", "3")
    if not seeds.isdecimal() or int(seeds) < 1:
        raise ValueError(f"--seeds is {seeds!r}, expected a number of at least 1")
    encodings, others = split(arguments.sources)
    readme = resources.find(recipe).with_name("README.md")
    variants: list[tuple[dict[str, Any], list[str]]] = []
    for encoding in [[], *encodings]:  # all are built before the first one runs, so that a refusal comes at once
        words = ["-c", recipe, *encoding, *others]
        config = _complete(words)
        if all(config != other for other, _ in variants):
            variants.append((config, words))
    rows = [[_run([*words, "--seed_everything", str(seed)]) for seed in range(int(seeds))] for _, words in variants]
    table = render(rows, shlex.join(["relbias", "table", *argv]))
    print(table)
    insert(readme, resources.find(recipe).stem, table)
    print(f"the table is in {readme}")
    return 0


def split(sources: Sequence[tuple[str, dict[str, Any]]]) -> tuple[list[list[str]], list[str]]:
    """Parts the sources of a command line into encodings, each of which is a row, and what applies to all.

    Args:
        sources: see :class:`relbias.cli.arguments.Arguments`.

    Returns:
        The arguments of ``relbias fit`` for each row, and those for every run.

    Raises:
        ValueError: an option would replace the encodings of all rows.

    Example:
        >>> alibi = {"model": {"init_args": {"encoding": "alibi"}}}
        >>> split([("encoding/alibi", alibi), ("--trainer.max_epochs", {"trainer": {"max_epochs": 3}})])
        ([['-c', 'encoding/alibi']], ['--trainer.max_epochs', '3'])
    """
    from relbias.cli.config import holds

    encodings, others = [], []
    for label, mapping in sources:
        if label.startswith("--"):
            value: Any = mapping
            for key in label[2:].split("."):
                value = value[key]
            others += [label, _text(value)]
        elif holds(mapping, ENCODING):
            encodings.append(["-c", label])
        else:
            others += ["-c", label]
    fixed = [label for label, mapping in sources if label.startswith("--") and holds(mapping, ENCODING)]
    if encodings and fixed:
        raise ValueError(
            f"{fixed[0]} would replace the encoding of every row; leave it out, or put it in a file for -c"
        )
    return encodings, others


def _text(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def _complete(argv: list[str]) -> dict[str, Any]:
    """The complete configuration of a run that can start, as its folder would hold it."""
    from relbias.cli.arguments import parse
    from relbias.cli.build import build
    from relbias.cli.trial import try_batch

    experiment = build(parse(argv).sources, with_trainer=False)
    try_batch(experiment)
    return experiment.dump()


def _run(argv: list[str]) -> dict[str, Any]:
    """What fit.json and test.json say of a run, and its encoding; trains and tests where they are missing."""
    from relbias.cli import run_folder, train

    config = _complete(argv)
    first = run_folder.family(argv[1], config)
    candidates = sorted(first.parent.glob(f"{first.name}*")) if first.parent.is_dir() else []
    done = [path for path in candidates if (path / run_folder.FIT).is_file() and run_folder.read_config(path) == config]
    run_dir = done[0] if done else train.fit(argv)
    test = run_folder.read_json(run_dir / run_folder.TEST)
    if test is None or test["overrides"]:
        train.evaluate("test", [str(run_dir)])
        test = run_folder.read_json(run_dir / run_folder.TEST)
    encoding = config["model"]["init_args"].get("encoding", "none")
    return {**(run_folder.read_json(run_dir / run_folder.FIT) or {}), **(test or {}), "encoding": describe(encoding)}


def describe(spec: Any) -> str:
    """An encoding in a table: its name and the options that differ from nothing.

    Args:
        spec: the value of ``model.init_args.encoding``.

    Example:
        >>> describe({"class_path": "relbias.encodings.Shaw", "init_args": {"max_distance": 3, "strength": None}})
        'shaw (max_distance=3)'
    """
    from relbias.cli.run_folder import label

    options = spec.get("init_args", {}) if isinstance(spec, dict) and "class_path" in spec else {}
    given = ", ".join(f"{key}={value}" for key, value in options.items() if value not in (None, False))
    return f"{label(spec)} ({given})" if given else label(spec)


def render(rows: Sequence[Sequence[dict[str, Any]]], command: str) -> str:
    """The table in Markdown.

    Args:
        rows: for each encoding the records of its seeds.
        command: the command that made them.

    Returns:
        A row per encoding: accuracies in percent as mean ± standard deviation over the seeds, the number of parameters,
        the mean time of a training and its epochs; below, machine, commit and command.
    """
    columns = [name for name, metric in METRICS.items() if all(metric in run for runs in rows for run in runs)]
    head = ["encoding", *(f"{name}, %" for name in columns), "parameters", "training, s", "epochs", "seeds"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for runs in rows:
        cells = [runs[0]["encoding"], *(_mean([100 * run[METRICS[name]] for run in runs]) for name in columns)]
        cells += [f"{runs[0]['parameters']:,}", f"{statistics.mean(run['seconds'] for run in runs):.0f}"]
        cells += [str(runs[0]["epochs"]), str(len(runs))]
        lines.append(f"| {' | '.join(cells)} |")
    every = [run for runs in rows for run in runs]
    machines = "; ".join(dict.fromkeys(run["machine"] for run in every))
    commits = ", ".join(dict.fromkeys(run["commit"] for run in every))
    return "\n".join([*lines, "", f"Machine: {machines}. Commit: {commits}. Command:", "", f"    {command}"])


def _mean(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def insert(readme: Path, name: str, table: str) -> None:
    """Puts a table between its markers, in place of the one that is there; appends both where there are none.

    Args:
        readme: the file; made where it is missing.
        name: the recipe's name, which the markers carry.
        table: the table.

    Raises:
        ValueError: the file cannot be written, or one of the two markers is missing.
    """
    begin, end = f"<!-- relbias table: begin {name} -->", f"<!-- relbias table: end {name} -->"
    block = f"{begin}\n{table}\n{end}"
    try:
        text = readme.read_text(encoding="utf-8") if readme.exists() else ""
        before, has_begin, rest = text.partition(begin)
        _, has_end, after = rest.partition(end)
        if bool(has_begin) != (end in text) or bool(has_begin) != bool(has_end):
            raise ValueError(f"{readme} has one of the markers {begin} and {end}; add the other or remove it")
        new = f"{before}{block}{after}" if has_begin else f"{text.rstrip()}\n\n{block}\n".lstrip()
        readme.write_text(new, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {readme}: {error.strerror}; the table is printed above") from None
