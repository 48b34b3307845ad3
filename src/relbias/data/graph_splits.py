"""Parts of a data set of graphs for training, validation and test."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

Parts = tuple[list[int], list[int], list[int]]
"""The positions for training, validation and test, each sorted."""


def shuffled_by_class(classes: Tensor | None, count: int, seed: int) -> list[int]:
    """Positions in a random order in which any stretch has about the same share of each class.

    Args:
        classes: (count,) integers, or None for no classes.
        count: how many there are.
        seed: of the order.

    Returns:
        The positions, each once.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    if classes is None:
        return order.tolist()
    # the place of each sample in its class, as a share of the class, says where it stands among all
    place = torch.empty(count, dtype=torch.float64)
    for value in classes.unique():
        own = order[classes[order] == value]
        place[own] = (torch.arange(len(own), dtype=torch.float64) + 0.5) / len(own)
    return order[place[order].argsort(stable=True)].tolist()


def by_shares(order: list[int], val_share: float, test_share: float) -> Parts:
    """Cuts an order into three: the test first, then the validation, then the training.

    Args:
        order: from :func:`shuffled_by_class`.
        val_share: of the validation.
        test_share: of the test.

    Raises:
        ValueError: there are too few samples for three parts.

    Example:
        >>> by_shares([3, 1, 0, 2, 4], 0.2, 0.2)
        ([0, 2, 4], [1], [3])
    """
    num_val, num_test = (max(1, round(share * len(order))) for share in (val_share, test_share))
    if len(order) <= num_val + num_test:
        raise ValueError(
            f"the data has {len(order)} graphs, and {num_val} for validation and {num_test} for the test leave none "
            "for training"
        )
    test, val, train = order[:num_test], order[num_test : num_test + num_val], order[num_test + num_val :]
    return sorted(train), sorted(val), sorted(test)


def by_folds(order: list[int], folds: int, fold: int) -> Parts:
    """One fold of a cross-validation: fold k is the test, the next one, k + 1, the validation, the others the training.

    Args:
        order: from :func:`shuffled_by_class`; a stretch of it is a fold.
        folds: their number, K, at least 3.
        fold: k, from 0 to K - 1.

    Raises:
        ValueError: there are fewer samples than folds.

    Example:
        >>> by_folds([3, 1, 0, 2, 4], 3, 2)
        ([0, 1], [3], [2, 4])
    """
    if len(order) < folds:
        raise ValueError(f"the data has {len(order)} graphs, expected at least as many as folds, {folds}")
    ends = [len(order) * number // folds for number in range(folds + 1)]
    parts = [order[start:end] for start, end in pairwise(ends)]
    val = (fold + 1) % folds
    train = [position for number, part in enumerate(parts) if number not in (fold, val) for position in part]
    return sorted(train), sorted(parts[val]), sorted(parts[fold])


def by_names(positions: dict[str, Any]) -> Parts:
    """The parts that a data set gives by name, as those of ogb do.

    Args:
        positions: "train", "val" or "valid", and "test" where there are labels for it; else the validation is the test.

    Raises:
        ValueError: there is no training or no validation.
    """
    val = positions.get("val", positions.get("valid"))
    if "train" not in positions or val is None:
        raise ValueError(f"get_idx_split() gives {', '.join(positions)}, expected train, valid and test")
    train, val, test = (
        torch.as_tensor(part).tolist() for part in (positions["train"], val, positions.get("test", val))
    )
    return train, val, test


def class_of(factory: Callable[[], Any]) -> Any:
    """The class, or else the function, that a call without arguments makes a data set with.

    Args:
        factory: a class, a function, or a functools.partial of one, as a class_path in a configuration gives.
    """
    inner: Any = factory
    while hasattr(inner, "func"):
        # jsonargparse gives a partial of its own function, whose last argument is the class
        inner = next((part for part in reversed(inner.args) if isinstance(part, type)), inner.func)
    return inner
