"""The entry point: finds the command, runs it, and turns the errors of its input into one line.

The commands about files (list, show, copy, check) are in :mod:`relbias.cli.files`, which imports torch only where it
must; the others are imported when they are called.
"""

import importlib
import os
import sys
from collections.abc import Sequence

import relbias
from relbias._extras import MissingExtraError
from relbias._nearest import nearest

# command: (module, what it does, in the order of a first use)
COMMANDS = {
    "list": ("files", "list recipes, configs, encodings, implementations or the timm models that attach takes"),
    "show": ("files", "print the YAML of a recipe or config"),
    "copy": ("files", "copy a recipe or config, to change it"),
    "check": ("files", "build every recipe, and every config on a recipe, without running it"),
    "fit": (
        "train",
        "train, or continue a training: relbias fit -c RECIPE [-c CONFIG ...] [--ckpt_path last] [--key value ...]",
    ),
    "validate": ("train", "evaluate a run folder on the validation split"),
    "test": ("train", "evaluate a run folder on the test split"),
    "predict": ("train", "write the predictions of a run folder"),
    "plot": ("plot", "draw the bias, the curve, the attention, the training or other sizes of run folders"),
    "table": ("table", "run a recipe with several encodings and seeds and write its results table"),
    "bench": ("bench", "measure time and memory of attention with relations, beside plain attention"),
}


def usage() -> str:
    """The text of ``relbias --help``.

    Example:
        >>> print(usage().splitlines()[0])
        usage: relbias COMMAND [arguments]
    """
    lines = ["usage: relbias COMMAND [arguments]", ""]
    lines += [f"  {command:<10}{text}" for command, (_, text) in COMMANDS.items()]
    return "\n".join(
        [*lines, "", "relbias COMMAND --help says what a command takes; relbias --version prints the version."]
    )


def run(argv: Sequence[str]) -> int:
    """Runs one command; the errors come out as exceptions.

    Args:
        argv: the command and its arguments, without the program's name.

    Returns:
        The exit code, 0 where all went well.

    Raises:
        ValueError: no such command, or what the command was given does not fit.
    """
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    command, *rest = argv
    if command == "--version":
        print(relbias.__version__)
        return 0
    if command not in COMMANDS:
        raise ValueError(f"no command {command!r}; {nearest(command, COMMANDS)}")
    home = importlib.import_module(f"relbias.cli.{COMMANDS[command][0]}")
    code = home.main(rest) if COMMANDS[command][0] in ("plot", "table", "bench") else home.main(command, rest)
    return code or 0


def message(error: Exception) -> str:
    """An error as one line.

    Example:
        >>> message(FileNotFoundError(2, "No such file or directory", "runs/1"))
        'No such file or directory: runs/1'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return " ".join(str(error).split()) or type(error).__name__


def main(argv: Sequence[str] | None = None) -> int:
    """The ``relbias`` program.

    Args:
        argv: the arguments; those of the process where not given.

    Returns:
        The exit code: 0, or 2 after an error of the input, which is one line on the standard error.
    """
    try:
        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output, such as head, has had enough; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (ValueError, MissingExtraError, OSError) as error:
        print(f"relbias: error: {message(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
