"""Binding what a call of a model knows, such as an image's grid, to the attention inside, for that call alone.

A host hands its blocks tokens and nothing else, so the attention cannot see the grid. The smallest enclosing method
that is given the image binds it for the time of its call; nothing of it is left afterwards, neither in the model (two
threads, or a copy, may use the same model) nor in a global.

Activation checkpointing runs a block a second time, in the backward pass: after the call that bound the grid, perhaps
after calls with other grids, on CUDA even in another thread. The block's own arguments are the one thing that is kept
for that second run, and what is called is the other. So under checkpointing the enclosing method runs on a stand-in
for the model, made for this call, whose blocks are functions that bind the grid of this call themselves: whatever
checkpoints them keeps the grid with them. Keying the grid to the block's input tensor would not do, since a
reentrant checkpoint and hooks on saved tensors hand over another tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)

# A thread's own storage and not a ContextVar, whose `set` cannot be compiled. The two differ for coroutines only, and
# a call of a model never waits for one.
_current = threading.local()


@contextmanager
def bind(value: Any) -> Generator[None]:
    """Make `bound` give a value to what runs inside, in this thread.

    Args:
        value: what the attention of a host needs; for a vision transformer the grid (height, width).

    Example:
        >>> with bind((4, 6)):
        ...     bound()
        (4, 6)
        >>> bound() is None
        True
    """
    outer = rebind(value)
    try:
        yield
    finally:
        rebind(outer)


def bound() -> Any:
    """What the innermost `bind` around this call in this thread gives; None outside of any."""
    return getattr(_current, "value", None)


def rebind(value: Any) -> Any:
    """Make `bound` give another value from here on, for hooks, between which there is no `with`.

    Args:
        value: as in `bind`.

    Returns:
        What it gave, to be bound again.
    """
    outer = bound()
    _current.value = value
    return outer


def bind_children(module: M, name: str, value: Any) -> M:
    """A stand-in for a module, for one call, in which some children bind a value themselves when they are called.

    Args:
        module: shares everything with the stand-in: parameters, buffers, children and hooks.
        name: of the child module, a sequence of modules, that is a list of functions in the stand-in.
        value: what each of them binds.
    """
    return bind_each(module, name, [value] * len(getattr(module, name)))


def bind_each(module: M, name: str, values: Sequence[Any]) -> M:
    """The same with another value for each child.

    Args:
        module: as in `bind_children`.
        name: as in `bind_children`.
        values: what the children bind, in their order.
    """
    stand_in = object.__new__(type(module))
    children = [partial(_call_bound, value, child) for value, child in zip(values, getattr(module, name), strict=True)]
    stand_in.__dict__ = {**module.__dict__, name: children}
    return stand_in


def _call_bound(value: Any, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with bind(value):
        return module(*args, **kwargs)
