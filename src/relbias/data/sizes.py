"""Other sizes of the images at which a data module tests."""

from collections.abc import Sequence

from relbias.relations.base import check_size


def check_sizes(sizes: Sequence[int], image_size: int | None = None) -> None:
    """Checks the argument `test_sizes` of a data module.

    A data module that has it also has `test_dataloader_at(size)`, the test split at any size, and `image_size`, the
    side of its images; its last test dataloaders are those of `test_sizes`, in this order.

    Args:
        sizes: sides of square images, in pixels.
        image_size: the side that is tested anyway, where it is known.

    Raises:
        ValueError: a size is not a positive integer, occurs twice, or is `image_size`.

    Example:
        >>> check_sizes([12, 16], 16)
        Traceback (most recent call last):
        ...
        ValueError: test_sizes has 16, the size of the images itself, which is tested anyway; leave it out
    """
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise ValueError(f"test_sizes is {sizes!r}, expected a list of sides in pixels")
    for size in sizes:
        check_size("a size in test_sizes", size, 1)
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"test_sizes has a size twice: {list(sizes)}")
    if image_size is not None and image_size in sizes:
        raise ValueError(
            f"test_sizes has {image_size}, the size of the images itself, which is tested anyway; leave it out"
        )
