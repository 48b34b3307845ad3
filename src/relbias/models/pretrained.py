"""Whether networks fetch the trained weights that they are built with."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_is_skipped = ContextVar("_is_skipped", default=False)


@contextmanager
def skip_pretrained() -> Generator[None]:
    """Networks built inside have the shape of their trained weights, not the numbers, and fetch nothing.

    For networks whose numbers come from a checkpoint, or that are built to see whether they can be.

    Example:
        >>> with skip_pretrained():
        ...     print(is_skipped())
        True
    """
    token = _is_skipped.set(True)
    try:
        yield
    finally:
        _is_skipped.reset(token)


def is_skipped() -> bool:
    """Whether a network that is built now leaves its trained weights out."""
    return _is_skipped.get()
