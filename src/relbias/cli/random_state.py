"""The states of the random generators, as values that a checkpoint can hold and that load with weights_only=True."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """The states of torch's, numpy's and Python's generators, and of the current CUDA device where one is in use.

    Returns:
        Tensors, numbers and lists.

    Example:
        >>> state = random_state()
        >>> first = torch.rand(3), np.random.rand(), random.random()
        >>> set_random_state(state)
        >>> second = torch.rand(3), np.random.rand(), random.random()
        >>> torch.equal(first[0], second[0]), first[1:] == second[1:]
        (True, True)
    """
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, next_gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(internal), next_gauss],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Sets the generators to what :func:`random_state` returned.

    Args:
        state: the states; that of CUDA is used where CUDA is in use.
    """
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    version, internal, next_gauss = state["python"]
    random.setstate((version, tuple(internal), next_gauss))
