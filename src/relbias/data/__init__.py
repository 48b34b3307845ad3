"""LightningDataModules: one data set each, with a fixed split. Each is loaded when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

from relbias._extras import extra
from relbias._nearest import nearest

if TYPE_CHECKING:
    from relbias.data.cifar10 import CIFAR10
    from relbias.data.digits import Digits
    from relbias.data.graphs import GraphData
    from relbias.data.image_folder import ImageFolder

__all__ = ["CIFAR10", "Digits", "GraphData", "ImageFolder"]

_MODULES = {"CIFAR10": "cifar10", "Digits": "digits", "GraphData": "graphs", "ImageFolder": "image_folder"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        with extra("train"):
            return getattr(importlib.import_module(f"relbias.data.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'relbias.data' has no attribute {name!r}; {nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
