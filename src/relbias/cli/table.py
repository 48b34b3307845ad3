"""table: runs a recipe with several encodings and seeds, and writes the results table into the recipe's README."""

import math
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relbias import resources

USAGE = """usage: relbias table RECIPE [--seeds N] [-c encoding/CONFIG ...] [-c CONFIG ...] [--key value ...]

Trains and tests the recipe with its own encoding and with that of every -c that sets model.init_args.encoding, each
with the seeds 0 to N - 1 (default 3), and writes the table between the markers in README.md beside the recipe. Other
configs and keys apply to every run. A column stands for each number of the test, accuracies and error rates in
percent. Runs lie where `relbias fit` puts them; one of the same configuration is not repeated where it is finished,
and continued where it was stopped."""

ENCODING = "model.init_args.encoding"
TEST = "test/"  # what the names of a test's metrics begin with


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
    network = _network(variants[0][0])
    rows = [
        [_run([*words, "--seed_everything", str(seed)], network) for seed in range(int(seeds))] for _, words in variants
    ]
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


def _network(config: dict[str, Any]) -> str:
    """The class of a configuration's network, empty where it has none."""
    return (config["model"]["init_args"].get("network") or {}).get("class_path", "")


def _run(argv: list[str], network: str) -> dict[str, Any]:
    """What fit.json and test.json say of a run, and its encoding; trains and tests where they are missing.

    A run of another network than the one given is named after it.
    """
    from relbias.cli import run_folder, train

    config = _complete(argv)
    first = run_folder.family(argv[1], config)
    same = [path for path in sorted(first.parent.glob(f"{first.name}*")) if _has_config(path, config)]
    done = [path for path in same if (path / run_folder.FIT).is_file()]
    if not done and same:
        argv = ["-c", str(same[0] / run_folder.CONFIG), "--ckpt_path", "last"]
    run_dir = done[0] if done else train.fit(argv)
    test = run_folder.read_json(run_dir / run_folder.TEST)
    if test is None or test["overrides"]:
        train.evaluate("test", [str(run_dir)])
        test = run_folder.read_json(run_dir / run_folder.TEST)
    name = describe(config["model"]["init_args"].get("encoding", "none"))
    if _network(config) != network:
        name = _network(config).rpartition(".")[2] + ("" if name == "none" else f", {name}")
    return {**(run_folder.read_json(run_dir / run_folder.FIT) or {}), **(test or {}), "encoding": name}


def _has_config(path: Path, config: dict[str, Any]) -> bool:
    """Whether a folder is a run of a configuration from beginning to end, and from its own weights."""
    from relbias.cli import run_folder

    is_other = any((path / name).exists() for name in (run_folder.WEIGHTS, run_folder.BEGUN))
    if is_other or not (path / run_folder.CONFIG).is_file():
        return False
    return run_folder.read_config(path) == config


def describe(spec: Any) -> str:
    """An encoding in a table: its name and the options that differ from nothing.

    Args:
        spec: the value of ``model.init_args.encoding``.

    Example:
        >>> describe({"class_path": "relbias.encodings.Shaw", "init_args": {"max_distance": 3, "strength": None}})
        'shaw (max_distance=3)'
        >>> describe({"hops": "table", "edge_types": "table"})
        'table over hops, table over edge_types'
    """
    from relbias.cli.run_folder import label

    if isinstance(spec, dict) and "class_path" not in spec:
        return ", ".join(f"{describe(part)} over {key}" for key, part in spec.items()) or label(spec)
    options = spec.get("init_args", {}) if isinstance(spec, dict) and "class_path" in spec else {}
    given = ", ".join(f"{key}={value}" for key, value in options.items() if value not in (None, False))
    return f"{label(spec)} ({given})" if given else label(spec)


def render(rows: Sequence[Sequence[dict[str, Any]]], command: str) -> str:
    """The table in Markdown.

    Args:
        rows: for each encoding the records of its seeds.
        command: the command that made them.

    Returns:
        A row per encoding: the numbers of the test as mean ± sample standard deviation over the seeds, accuracies
        and error rates in percent and others to four digits, a dash where not all runs of the row have the number;
        the number of parameters, the mean time of a training and its epochs; below, machine, commit and command.

    Example:
        >>> run = {"encoding": "shaw", "test/mae": 0.25, "test/accuracy": 0.5, "parameters": 7, "seconds": 60.0}
        >>> print(render([[{**run, "epochs": 3, "machine": "M", "commit": "C"}]], "relbias table own"))
        | encoding | mae | accuracy, % | parameters | training, s | epochs | seeds |
        |---|---|---|---|---|---|---|
        | shaw | 0.2500 | 50.0 | 7 | 60 | 3 | 1 |
        ...
    """
    every = [run for runs in rows for run in runs]
    columns = list(dict.fromkeys(name for run in every for name in run if name.startswith(TEST)))
    names = [name.removeprefix(TEST).replace("_", " ") + (", %" if _is_share(name) else "") for name in columns]
    head = ["encoding", *names, "parameters", "training, s", "epochs", "seeds"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for runs in rows:
        cells = [runs[0]["encoding"], *(_cell(name, [run.get(name) for run in runs]) for name in columns)]
        cells += [f"{runs[0]['parameters']:,}", f"{statistics.mean(run['seconds'] for run in runs):.0f}"]
        cells += [str(runs[0]["epochs"]), str(len(runs))]
        lines.append(f"| {' | '.join(cells)} |")
    machines = "; ".join(dict.fromkeys(run["machine"] for run in every))
    commits = ", ".join(dict.fromkeys(run["commit"] for run in every))
    return "\n".join([*lines, "", f"Machine: {machines}. Commit: {commits}. Command:", "", f"    {command}"])


def _cell(name: str, found: Sequence[float | None]) -> str:
    """The mean, and where there are several values their spread to the same decimal place."""
    values = [(100 if _is_share(name) else 1) * value for value in found if value is not None]
    if len(values) < len(found):
        return "-"
    mean = statistics.fmean(values)
    form = ".1f"
    if not _is_share(name):
        is_plain = math.isfinite(mean) and (mean == 0 or 1e-4 <= abs(mean) < 1e4)
        form = f".{3 - math.floor(math.log10(abs(mean) or 1))}f" if is_plain else ".3e"
    return f"{mean:{form}} ± {statistics.stdev(values):{form}}" if len(values) > 1 else f"{mean:{form}}"


def _is_share(name: str) -> bool:
    """Whether a number of a test is a share, which the table gives in percent."""
    return "accuracy" in name or "error_rate" in name


def insert(readme: Path, name: str, table: str, command: str = "table") -> None:
    """Puts a table between its markers, in place of the one that is there; appends both where there are none.

    Args:
        readme: the file; made where it is missing.
        name: what the markers carry, such as the recipe's name.
        table: the table.
        command: the command that the markers carry.

    Raises:
        ValueError: the file cannot be written, or one of the two markers is missing.
    """
    from relbias.cli.atomic import write_atomic

    begin, end = f"<!-- relbias {command}: begin {name} -->", f"<!-- relbias {command}: end {name} -->"
    block = f"{begin}\n{table}\n{end}"
    try:
        text = readme.read_text(encoding="utf-8") if readme.exists() else ""
        before, has_begin, rest = text.partition(begin)
        _, has_end, after = rest.partition(end)
        if bool(has_begin) != (end in text) or bool(has_begin) != bool(has_end):
            raise ValueError(f"{readme} has one of the markers {begin} and {end}; add the other or remove it")
        new = f"{before}{block}{after}" if has_begin else f"{text.rstrip()}\n\n{block}\n".lstrip()
        write_atomic(readme.resolve(), new.encode())
    except OSError as error:
        raise ValueError(f"cannot write {readme}: {error.strerror}; the table is printed above") from None
