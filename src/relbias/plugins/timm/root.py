"""What every attached model of timm has at its root."""

from __future__ import annotations

from typing import Any

from torch import nn

from relbias.encodings import Encoding


class AttachedModel:
    """Keeps weight decay off the encodings. The model's own class is the next base."""

    def no_weight_decay(self) -> set[str]:
        """The names of the parameters that timm's optimizers do not decay: the model's own and those of encodings."""
        model: Any = self
        host: Any = super()
        own = set(host.no_weight_decay()) if hasattr(host, "no_weight_decay") else set()
        encodings = {name for name, module in model.named_modules() if isinstance(module, Encoding)}
        return own | {name for name, _ in nn.Module.named_parameters(model) if _within(name, encodings)}


def _within(name: str, modules: set[str]) -> bool:
    """Whether a parameter is one of these modules', or of a module inside them."""
    path = name.split(".")
    return any(".".join(path[:depth]) in modules for depth in range(1, len(path)))
