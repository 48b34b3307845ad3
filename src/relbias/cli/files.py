"""list, show, copy and check: what there is, without importing torch where it is only files."""

import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from relbias import resources
from relbias._nearest import nearest
from relbias.cli.parser import Parser

SUBJECTS = ("recipes", "configs", "encodings", "implementations", "timm")


def main(command: str, argv: Sequence[str]) -> int:
    """Runs one of the four commands.

    Args:
        command: ``"list"``, ``"show"``, ``"copy"`` or ``"check"``.
        argv: its arguments.

    Returns:
        The exit code.

    Raises:
        ValueError: an unknown name or subject, or arguments that do not fit.
        FileExistsError: copy would overwrite a file.

    Example:
        >>> main("show", ["encoding/none"])
        # No position information at all (NoPE).
        model:
          init_args:
            encoding: none
        0
    """
    parser = Parser(prog=f"relbias {command}", description=_DESCRIPTIONS[command])
    if command == "list":
        parser.add_argument("subject", nargs="?", default="recipes", help=" | ".join(SUBJECTS) + " (default: recipes)")
        parser.add_argument("pattern", nargs="?", default="*", help="a wildcard that the names must match, '*rope*'")
        options = parser.parse_args(argv)
        _print_list(options.subject, options.pattern)
    elif command == "show":
        parser.add_argument("name", help="a recipe or config, such as vision/digits or encoding/alibi")
        print(resources.read(resources.find(parser.parse_args(argv).name)), end="")
    elif command == "check":
        parser.add_argument("names", nargs="*", help="recipes or configs (default: all)")
        parser.add_argument("-c", action="append", default=[], metavar="CONFIG", help="a config to lay on each recipe")
        options = parser.parse_args(argv)
        return _check(options.names, options.c)
    else:
        parser.add_argument("name", help="a recipe or config, such as vision/digits or encoding/alibi")
        parser.add_argument("destination", nargs="?", default=".", help="a folder or a file (default: this folder)")
        options = parser.parse_args(argv)
        print(_copy(resources.find(options.name), options.destination))
    return 0


_DESCRIPTIONS = {
    "list": "Prints names, one a line; recipes and configs with what they are.",
    "show": "Prints the YAML of a recipe or config.",
    "copy": "Copies a recipe or config, to change it; never overwrites a file.",
    "check": "Builds each recipe, and each config on a recipe that it fits, without running it.",
}


def _print_list(subject: str, pattern: str) -> None:
    if subject not in SUBJECTS:
        raise ValueError(f"nothing to list under {subject!r}; {nearest(subject, SUBJECTS)}")
    if subject not in resources.KINDS:
        for name in _library_names(subject):
            if fnmatchcase(name, pattern):
                print(name)
        return
    names = resources.names(subject, pattern)
    width = max(map(len, names), default=0)
    for name in names:
        print(f"{name:<{width}}  {resources.summary(resources.find(name))}".rstrip())


def _library_names(subject: str) -> list[str]:
    """The names that only the library itself knows; these imports load torch."""
    if subject == "encodings":
        from relbias.encodings import list_encodings

        return list_encodings()
    if subject == "implementations":
        from relbias.attention import list_implementations

        return list_implementations()
    from relbias.plugins import timm

    return timm.list_models()


def _check(names: list[str], overlays: list[str]) -> int:
    for name in [*names, *overlays]:
        resources.find(name)  # a wrong name is told at once, before torch is loaded
    from relbias.cli.check import check

    return check(names, overlays)


def _copy(source: Path, destination: str) -> Path:
    folder = Path(destination)
    if destination.endswith("/") and not folder.is_dir():
        raise ValueError(f"there is no folder {destination}; make it first, or give a file that ends in .yaml")
    if folder.suffix not in (".yaml", ".yml") and not folder.exists():
        raise ValueError(f"there is no folder {destination}; make it first, or give a file that ends in .yaml")
    target = folder / source.name if folder.is_dir() else folder
    if target.exists():
        raise FileExistsError(f"{target} exists; give another destination or remove it first")
    shutil.copyfile(source, target)
    return target
