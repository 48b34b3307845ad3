"""Other lengths at which a data module of sequences tests."""

from collections.abc import Sequence
from itertools import pairwise

from relbias.relations.base import check_size


def check_lengths(lengths: Sequence[int], length: int, what: str = "tokens") -> None:
    """Checks the argument `test_lengths` of a data module.

    A data module that has it also has `length`, that of its training, and `test_dataloader_at(length)`, its test at any
    length; its last test dataloaders are those of `test_lengths`, in this order.

    Args:
        lengths: the other lengths, increasing.
        length: the one that is tested anyway.
        what: the unit of the lengths, for messages.

    Raises:
        ValueError: a length is not a positive integer, is `length`, or is not above the one before it.

    Example:
        >>> check_lengths([128, 128], 64)
        Traceback (most recent call last):
        ...
        ValueError: test_lengths is [128, 128], expected lengths that increase, such as [128, 256]
    """
    if not isinstance(lengths, Sequence) or isinstance(lengths, str):
        raise ValueError(f"test_lengths is {lengths!r}, expected a list of lengths in {what}")
    for each in lengths:
        check_size("a length in test_lengths", each, 1)
    if any(second <= first for first, second in pairwise(lengths)):
        raise ValueError(f"test_lengths is {list(lengths)}, expected lengths that increase, such as [128, 256]")
    if length in lengths:
        raise ValueError(
            f"test_lengths has {length}, the length of the training itself, which is tested anyway; leave it out"
        )
