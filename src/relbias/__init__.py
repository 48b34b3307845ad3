"""Attention that knows how any two tokens are related.

Importing this package loads neither torch nor any part of the library; each attribute loads what it needs on first use.

Example:
    >>> import relbias as rb
    >>> rb.list_encodings("rope_l*")
    ['rope_linear', 'rope_llama3', 'rope_longrope']
"""

import importlib
from typing import TYPE_CHECKING, Any

from relbias._nearest import nearest

__version__ = "0.1.0"

if TYPE_CHECKING:
    from relbias import attention, data, encodings, models, plot, plugins, relations, tasks, testing
    from relbias.attention import KVCache, RelativeAttention, capture, explain, list_implementations, relative_attention
    from relbias.encodings import Encoding, create_encoding, list_encodings
    from relbias.models import generate
    from relbias.terms import Terms

_MODULES = ("attention", "data", "encodings", "models", "plot", "plugins", "relations", "tasks", "testing")
_HOMES = {
    "Encoding": "encodings",
    "KVCache": "attention",
    "RelativeAttention": "attention",
    "Terms": "terms",
    "capture": "attention",
    "create_encoding": "encodings",
    "explain": "attention",
    "generate": "models",
    "list_encodings": "encodings",
    "list_implementations": "attention",
    "relative_attention": "attention",
}

__all__ = [
    "Encoding",
    "KVCache",
    "RelativeAttention",
    "Terms",
    "__version__",
    "attention",
    "capture",
    "create_encoding",
    "data",
    "encodings",
    "explain",
    "generate",
    "list_encodings",
    "list_implementations",
    "models",
    "plot",
    "plugins",
    "relations",
    "relative_attention",
    "tasks",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"relbias.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"relbias.{_HOMES[name]}"), name)
        globals()[name] = value  # the next access finds it without coming here
        return value
    raise AttributeError(f"module 'relbias' has no attribute {name!r}; {nearest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
