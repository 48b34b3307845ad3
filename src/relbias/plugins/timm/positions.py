"""Leaving out a model's own absolute positions, while their parameters stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)

_DROPPED = "relbias_dropped"
"""The attribute of a module that says which of its parameters are dropped, and whether they required a gradient."""


def drop(root: nn.Module, names: Sequence[str]) -> None:
    """Freeze the parameters that hold absolute positions and make `without_positions` read them as zeros.

    The parameters keep their values and their place in the state dict. A frozen one is no unused parameter to
    distributed training, and an optimizer built afterwards leaves it alone.

    Args:
        root: the model.
        names: of the parameters; see `find`.
    """
    for name in names:
        owner, _, attribute = name.rpartition(".")
        module: Any = root.get_submodule(owner)
        parameter = getattr(module, attribute)
        vars(module).setdefault(_DROPPED, {})[attribute] = parameter.requires_grad
        parameter.requires_grad_(False)


def find(root: nn.Module, names: Sequence[str]) -> list[str]:
    """Those of the parameters that a model has; without positions timm's models hold None instead.

    Args:
        root: the model.
        names: of parameters, with the path to the module that owns them.
    """
    parameters = dict(root.named_parameters())
    return [name for name in names if name in parameters]


def restore(root: nn.Module) -> None:
    """Undo `drop`.

    Args:
        root: the model.
    """
    for module in root.modules():
        for attribute, trained in vars(module).pop(_DROPPED, {}).items():
            getattr(module, attribute).requires_grad_(trained)


def without_positions(module: M) -> M:
    """A stand-in for a module, for one call, in which dropped positions are zeros; the module itself if none are.

    Args:
        module: shares everything else with the stand-in.
    """
    dropped = module.__dict__.get(_DROPPED)
    if not dropped:
        return module
    stand_in = object.__new__(type(module))
    zeros = {name: torch.zeros_like(getattr(module, name)) for name in dropped}
    stand_in.__dict__ = {**module.__dict__, "_parameters": {**module._parameters, **zeros}}
    return stand_in
