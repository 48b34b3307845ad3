"""The tensors of one pass over the blocks, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor


class Work:
    """The tensors that the parts of a call refer to by number.

    Args:
        tensors: q, (B, H, N, D), k, (B, H, M, D), v, (B, H, M, Dv), and those of the parts.
        wanted: of which tensors gradients are wanted; of none by default.
        written: of how many, the first ones, the gradients will be written; the others are added to zeros.
    """

    def __init__(self, tensors: Sequence[Tensor], wanted: Sequence[bool] | None = None, written: int = 0) -> None:
        self.tensors = tensors
        wanted = [False] * len(tensors) if wanted is None else wanted
        self.grads = [
            (x.new_empty if number < written else x.new_zeros)(x.shape) if want else None
            for number, (x, want) in enumerate(zip(tensors, wanted, strict=True))
        ]
        self._kept: dict[object, tuple[object, Tensor]] = {}

    def kept(self, name: object, state: object, make: Callable[[], Tensor]) -> Tensor:
        """What was made under this name, as long as the state is the same; else it is made anew."""
        if name not in self._kept or self._kept[name][0] != state:
            self._kept.pop(name, None)
            self._kept[name] = (state, make())
        return self._kept[name][1]

    def state(self, name: object) -> object:
        """The state in which something was made under this name; None if there is nothing."""
        return self._kept[name][0] if name in self._kept else None

    def taken(self, name: object) -> Tensor:
        """What was made under this name, which is kept no longer."""
        return self._kept.pop(name)[1]
