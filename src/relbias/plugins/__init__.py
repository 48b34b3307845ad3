"""Plug-ins: relative encodings inside other libraries' models. One module a host, loaded when first used."""

import importlib
from typing import TYPE_CHECKING, Any

from relbias._nearest import nearest

if TYPE_CHECKING:
    from relbias.plugins import pyg, timm, torch, torchaudio

__all__ = ["pyg", "timm", "torch", "torchaudio"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"relbias.plugins.{name}")
    raise AttributeError(f"module 'relbias.plugins' has no attribute {name!r}; {nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
