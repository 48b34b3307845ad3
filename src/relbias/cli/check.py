"""check: builds recipes and configs without running them."""

from collections.abc import Sequence

from relbias import resources
from relbias._extras import MissingExtraError, extra

with extra("train"):
    from relbias.cli.arguments import read
    from relbias.cli.build import build
    from relbias.cli.config import merge


def check(names: Sequence[str], overlays: Sequence[str] = ()) -> int:
    """Builds the task and the data of recipes; a config is laid on the first recipe that it fits.

    Trained weights and data sets are not fetched.

    Args:
        names: recipes and configs, by name or path; all where empty, and all recipes where there are overlays.
        overlays: configs that are laid on each recipe.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: one that cannot be built; the message says why for each.
    """
    failures = []
    for name in names or [*resources.names("recipes"), *([] if overlays else resources.names("configs"))]:
        try:
            print(_check_one(name, overlays))
        except (ValueError, MissingExtraError) as error:
            failures.append(str(error))
    if failures:
        raise ValueError("; ".join(failures))
    return 0


def _check_one(name: str, overlays: Sequence[str]) -> str:
    if overlays or "class_path" in (read(name).get("model") or ()):
        build([(label, read(label)) for label in (name, *overlays)], with_trainer=False)
        return f"ok  {' with '.join((name, *overlays))}"
    refusals, unknown = [], []
    for recipe in resources.names("recipes"):
        sources = [(label, read(label)) for label in (recipe, name)]
        try:
            merge(sources)
        except MissingExtraError as error:
            refusals.append(f"{recipe}: {error}")
            continue
        except ValueError as error:  # the recipe has no such option, or the config names what does not exist
            unknown.append(str(error))
            continue
        try:
            build(sources, with_trainer=False)
        except ValueError as error:  # what the recipe's own classes refuse, such as an encoding for sequences on a grid
            refusals.append(str(error))
        else:
            return f"ok  {name} on {recipe}"
    if unknown and not refusals:
        raise ValueError(unknown[0])
    return f"--  {name} fits none of the recipes ({'; '.join(refusals)})"
