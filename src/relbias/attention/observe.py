"""Telling who asks of each call of attention within a model, whatever computes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from relbias.attention.call import Call

_local = threading.local()  # of each thread: its observers


def in_backward() -> bool:
    """Whether this runs within a backward pass: a call whose first run is over is being recomputed."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


@contextmanager
def observe(model: nn.Module, function: Callable[[str, Call], None]) -> Generator[None]:
    """Make a function see every call of attention that the model makes in this thread, but recomputed ones.

    The innermost module of the model that is being called names the layer, so the model or a part of it must be
    called as a module; what runs as a compiled graph is not seen. The hooks are global ones: hooks on the modules
    would go into a copy of the model that is made meanwhile, and torch's TransformerEncoderLayer computes otherwise
    where it sees some.

    Args:
        model: a module that stands in it twice has its first name.
        function: called without gradients and autocast, before each call is computed, with the layer's name ("" for
            the model itself) and the call.
    """
    names = {id(module): name for name, module in model.named_modules()}
    thread = threading.get_ident()
    running: list[int] = []

    def enter(module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling() and id(module) in names and threading.get_ident() == thread:
            running.append(id(module))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling() and id(module) in running and threading.get_ident() == thread:
            while running.pop() != id(module):  # an interrupted module has not left by itself
                pass

    def see(call: Call) -> None:
        if running and not in_backward():
            function(names[running[-1]], call)

    hooks = (
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    )
    _local.observers = (*_observers(), see)
    try:
        yield
    finally:
        _local.observers = tuple(other for other in _observers() if other is not see)  # they may end in any order
        for hook in hooks:
            hook.remove()


def notify(call: Call) -> None:
    """Show a call to the observers of this thread."""
    if torch.compiler.is_compiling():
        return
    observers = _observers()
    if observers:
        with torch.no_grad():
            for see in observers:
                see(call)


def _observers() -> tuple[Callable[[Call], None], ...]:
    return getattr(_local, "observers", ())
