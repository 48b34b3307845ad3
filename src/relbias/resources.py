"""Finds the recipes and configs, in an installed wheel as in a clone, without importing torch.

A name is the file's path in its folder without the suffix: ``vision/digits`` is ``recipes/vision/digits.yaml`` and
``encoding/alibi`` is ``configs/encoding/alibi.yaml``. No name stands in both folders.
"""

from fnmatch import fnmatchcase
from pathlib import Path

from relbias._nearest import nearest

KINDS = ("recipes", "configs")


class UnknownNameError(ValueError):
    """No recipe or config has this name and no file has this path."""


def folder(kind: str) -> Path:
    """The folder that holds the recipes or the configs.

    Args:
        kind: ``"recipes"`` or ``"configs"``.

    Raises:
        ValueError: another kind.
        FileNotFoundError: the installation lacks the folder.

    Example:
        >>> folder("configs").name
        'configs'
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    package = Path(__file__).resolve().parent
    # A wheel holds the folders inside the package; a clone, also when installed as editable, at its top.
    for candidate in (package / kind, package.parents[1] / kind):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"the {kind} folder is missing from the installation in {package}; install relbias again")


def names(kind: str, pattern: str = "*") -> list[str]:
    """The names of all recipes or configs, sorted.

    Args:
        kind: ``"recipes"`` or ``"configs"``.
        pattern: a shell wildcard that the names must match.

    Example:
        >>> names("configs", "trainer/?pu")
        ['trainer/cpu', 'trainer/gpu']
    """
    top = folder(kind)
    every = (path.relative_to(top).with_suffix("").as_posix() for path in top.rglob("*.yaml"))
    return sorted(name for name in every if fnmatchcase(name, pattern))


def find(name: str) -> Path:
    """The file of a recipe or config.

    Args:
        name: a name such as ``vision/digits``, or else the path of a YAML file.

    Raises:
        UnknownNameError: neither a name nor a file; the message names the nearest.

    Example:
        >>> find("encoding/alibi").name
        'alibi.yaml'
    """
    for kind in KINDS:
        if name in names(kind):
            return folder(kind) / f"{name}.yaml"
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        if (path / "config.yaml").is_file():
            raise UnknownNameError(f"{name} is a folder; give the configuration in it, {path / 'config.yaml'}")
        raise UnknownNameError(f"{name} is a folder; give a YAML file or a name such as vision/digits")
    known = [known_name for kind in KINDS for known_name in names(kind)]
    raise UnknownNameError(f"no recipe, config or file {name!r}; {nearest(name, known)}")


def read(path: Path) -> str:
    """The text of a file.

    Raises:
        ValueError: it is no text in UTF-8.

    Example:
        >>> read(find("encoding/none")).splitlines()[0]
        '# No position information at all (NoPE).'
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text in UTF-8 ({error.reason} at byte {error.start}); save it as such"
        ) from None


def summary(path: Path) -> str:
    """The first line of the header comment of a recipe or config, without its mark; empty where there is none.

    Example:
        >>> summary(find("encoding/none"))
        'No position information at all (NoPE).'
    """
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    return first.lstrip("# ").strip() if first.startswith("#") else ""
