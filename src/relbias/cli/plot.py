"""plot bias, curve, attention, training and extrapolation: pictures of run folders."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from relbias._extras import extra
from relbias._nearest import nearest
from relbias.cli.parser import Parser

FIGURES = ("bias", "curve", "attention", "training", "extrapolation")


def main(argv: Sequence[str]) -> int:
    """Draws the runs and prints where the pictures and their numbers lie.

    Args:
        argv: the arguments of ``relbias plot``.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: no such figure, no run folder, or nothing to draw.
        MissingExtraError: matplotlib is not installed.
    """
    parser = Parser(prog="relbias plot", description="Draws run folders; pictures of an earlier call are replaced.")
    parser.add_argument(
        "figure",
        help="bias (over offsets or tokens) | curve (bias against distance) | attention (of the first test sample) | "
        "training | extrapolation (the numbers of the test against the size, for all runs in one picture)",
    )
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", type=Path)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to draw (default: RUN_DIR/plots)")
    parser.add_argument(
        "--at", metavar="SIZES", help="extrapolation: increasing sizes at which to test, such as 16,24,32"
    )
    parser.add_argument(
        "--resize",
        choices=("patch", "image"),
        help="extrapolation: resize tables that are too small for a size, on a copy; an offset in patches keeps its "
        "numbers, or one in the image; without it such sizes are left out",
    )
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="CONFIG",
        help="extrapolation: test the runs once more with their weights and a change of the network that needs no "
        "others: network/window, or for runs with rope encoding/rope_yarn; can be repeated",
    )
    options = parser.parse_args(argv)
    if options.figure not in FIGURES:
        raise ValueError(f"no figure {options.figure!r}; {nearest(options.figure, FIGURES)}")
    is_extrapolation = options.figure == "extrapolation"
    if not is_extrapolation and (options.at is not None or options.resize is not None or options.config):
        raise ValueError("--at, --resize and -c apply to relbias plot extrapolation only")
    with extra("plot"):
        import matplotlib  # noqa: F401  (asked for before anything is built)
    if is_extrapolation:
        files = _draw_extrapolation(options.run_dirs, options.output, options.at, options.resize, options.config)
    else:
        draw = _draw_training if options.figure == "training" else _draw_models
        files = draw(options.figure, options.run_dirs, options.output)
    for file in files:
        print(file)
    return 0


@contextmanager
def _writing() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot write {error.filename}: {error.strerror}; give another folder with -o") from None


def _draw_training(figure: str, run_dirs: list[Path], output: Path | None) -> list[Path]:
    from relbias.plot.training import plot_training, read_metrics

    curves = {str(run_dir): read_metrics(run_dir / "metrics.csv") for run_dir in run_dirs}
    with _writing():
        return plot_training(curves, (output or run_dirs[0] / "plots") / "training.png")


def _draw_extrapolation(
    run_dirs: list[Path], output: Path | None, at: str | None, resize: Any, changes: list[str]
) -> list[Path]:
    from relbias.cli.plot_extrapolation import evaluate, read_sizes
    from relbias.plot import plot_extrapolation

    rows, options = evaluate(run_dirs, read_sizes(at), resize, changes)
    with _writing():
        return plot_extrapolation(rows, (output or run_dirs[0] / "plots") / "extrapolation.png", **options)


def _draw_models(figure: str, run_dirs: list[Path], output: Path | None) -> list[Path]:
    from relbias.cli import run_folder
    from relbias.cli.build import build
    from relbias.cli.plot_attention import attention
    from relbias.plot import layers, plot_bias, plot_curve

    files = []
    for run_dir, name in zip(run_dirs, _names(run_dirs), strict=True):
        config = (str(run_dir / run_folder.CONFIG), run_folder.read_config(run_dir))
        experiment = build([config], with_trainer=False)
        run_folder.load_weights(experiment.model, run_dir / run_folder.BEST)
        path = (output or run_dir / "plots") / f"{figure}.png"
        if output is not None and len(run_dirs) > 1:
            path = output / f"{name}-{figure}.png"
        if figure == "attention":
            draw = attention(experiment)
        else:
            draw = partial(plot_bias if figure == "bias" else plot_curve, layers(experiment.model))
        with _writing():
            files += draw(path, title=str(run_dir))
    return files


def _names(run_dirs: list[Path]) -> list[str]:
    """For each run the end of its path: two parts, or as many as tell the runs apart."""
    paths = [run_dir.resolve().parts[1:] for run_dir in run_dirs]
    length = 2
    while len({path[-length:] for path in paths}) < len(set(paths)):
        length += 1
    return ["-".join(path[-length:]) for path in paths]
