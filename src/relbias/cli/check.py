"""check: builds recipes and configs without running them."""

from collections.abc import Sequence

from relbias import resources
from relbias._extras import extra

with extra("train"):
    from relbias.cli.arguments import read
    from relbias.cli.build import build
    from relbias.cli.config import merge


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
    if "class_path" in (read(name).get("model") or ()):
        build([(name, read(name))], with_trainer=False)
        return f"ok  {name}"
    refusals = []
    for recipe in resources.names("recipes"):
        sources = [(label, read(label)) for label in (recipe, name)]
        merge(sources)  # a key or encoding that does not exist is an error
        try:
            build(sources, with_trainer=False)
        except ValueError as error:  # what the recipe's own classes refuse, such as an encoding for sequences on a grid
            refusals.append(str(error))
        else:
            return f"ok  {name} on {recipe}"
    return f"--  {name} fits none of the recipes ({'; '.join(refusals)})"
