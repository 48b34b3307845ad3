"""What `attach` needs to know about a family of timm's models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from relbias.plugins.engine import Site


class UnsupportedError(ValueError):
    """The reason why a model is not supported, as the rest of a sentence: "its blocks ..."."""


def own_grid(root: Any) -> tuple[int, int]:
    """The patches of the images that a model was made for, (height, width)."""
    return root.patch_embed.grid_size


@dataclass(frozen=True)
class Host:
    """A class of timm's models and where their attention is.

    Args:
        root: the class of the models.
        modules: the names of timm's files that hold their architectures.
        sites: the attention modules of a model, each with its relation, for a grid (height, width) in patches. It is
            called before and after `attach`, so it knows modules by `is_exactly`. Raises UnsupportedError.
        classes: the modules other than the sites that change their class, and the new classes.
        tokens: where an encoding that is applied to tokens (cpe) goes, for a grid: the first block, after which its
            encoding sees the tokens. Raises UnsupportedError. None where a family has no such place.
        positions: the names of the parameters that hold absolute positions, where a model has them. Their modules
            call their own class on `positions.without_positions(self)`.
        grid: a model's own grid; its first, where deeper layers have coarser ones; that of a window, where it attends
            in windows.
        refused: architectures of these files that are not supported, as patterns with the wildcards * and ?.
    """

    root: type[nn.Module]
    modules: tuple[str, ...]
    sites: Callable[[Any, tuple[int, int]], list[Site]]
    classes: Callable[[Any], Mapping[nn.Module, type[nn.Module]]] = lambda root: {}
    tokens: Callable[[Any, tuple[int, int]], Site] | None = None
    positions: tuple[str, ...] = ()
    grid: Callable[[Any], tuple[int, int]] = own_grid
    refused: tuple[str, ...] = ()


def is_exactly(module: nn.Module, *classes: type[nn.Module]) -> bool:
    """Whether a module has one of these classes, not a subclass, or had it before `attach`.

    Args:
        module: of a host.
        *classes: of timm.
    """
    return getattr(type(module), "host_class", type(module)) in classes
