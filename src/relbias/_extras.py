"""Optional packages: a missing one is a one-line error that names the extra to install."""

from collections.abc import Generator
from contextlib import contextmanager


class MissingExtraError(ImportError):
    """A package of one of the extras is not installed; the message says how to install it."""


@contextmanager
def extra(name: str) -> Generator[None, None, None]:
    """Guards the imports of optional packages, in a ``with`` block so that type checkers still see plain imports.

    Args:
        name: the extra of this package that brings what the block imports, such as ``"vision"``.

    Raises:
        MissingExtraError: a package is missing; the message names it and the command that installs the extra.

    Example:
        >>> with extra("vision"):
        ...     import no_such_package
        Traceback (most recent call last):
        ...
        relbias._extras.MissingExtraError: no_such_package is not installed; run: pip install 'relbias[vision]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "a package").partition(".")[0]
        if missing == "relbias":  # a module of our own is missing: a fault, not an option
            raise
        raise MissingExtraError(
            f"{missing} is not installed; run: pip install 'relbias[{name}]'", name=error.name
        ) from None
