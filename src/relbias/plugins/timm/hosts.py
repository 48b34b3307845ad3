"""All the families of timm's models that `attach` supports."""

from __future__ import annotations

import difflib
import fnmatch
from typing import Any

from torch import nn

from relbias._extras import extra
from relbias.plugins.timm import (
    beit,
    crossvit,
    csatv2,
    deepseek_vit,
    eva,
    feature_list,
    gemma4_vit,
    maxxvit,
    mobilevit,
    naflexvit,
    pit,
    qwen3_vit,
    swin_transformer,
    swin_transformer_v2,
    swin_transformer_v2_cr,
    vision_transformer,
    vision_transformer_relpos,
    vision_transformer_sam,
)
from relbias.plugins.timm.host import Host
from relbias.plugins.timm.unsupported import reason

with extra("vision"):
    import timm

_FAMILIES: tuple[Any, ...] = (
    beit,
    crossvit,
    csatv2,
    deepseek_vit,
    eva,
    feature_list,
    gemma4_vit,
    maxxvit,
    mobilevit,
    naflexvit,
    pit,
    qwen3_vit,
    swin_transformer,
    swin_transformer_v2,
    swin_transformer_v2_cr,
    vision_transformer,
    vision_transformer_relpos,
    vision_transformer_sam,
)

HOSTS: dict[type[nn.Module], Host] = {host.root: host for family in _FAMILIES for host in family.HOSTS}
"""The host of each class of models."""


def architectures() -> list[str]:
    """The names of the architectures that are supported, sorted."""
    found = set()
    for host in HOSTS.values():
        names = [name for module in host.modules for name in timm.list_models(module=module)]
        found.update(name for name in names if not any(fnmatch.fnmatch(name, refused) for refused in host.refused))
    return sorted(found)


def find(model: nn.Module) -> tuple[nn.Module, Host]:
    """The model of a supported class that is the model given, or is inside it, and its host.

    Raises:
        ValueError: there is none, or several.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected a model, got a {type(model).__name__}; timm.create_model(name) makes one")
    found = [module for module in model.modules() if _host_class(module) in HOSTS]
    outermost = [module for module in found if not any(module is not o and module in set(o.modules()) for o in found)]
    if len(outermost) == 1:
        return outermost[0], HOSTS[_host_class(outermost[0])]
    if outermost:
        names = ", ".join(sorted({_host_class(module).__name__ for module in outermost}))
        raise ValueError(f"{type(model).__name__} has {len(outermost)} models inside ({names}); pass one of them")
    subclasses = [module for module in model.modules() if isinstance(module, tuple(HOSTS))]
    if subclasses:
        raise refusal(subclasses[0], f"its class {type(subclasses[0]).__name__} is not timm's own")
    raise refusal(model, reason(model))


def refusal(model: nn.Module, why: str) -> ValueError:
    """The error for a model that is not supported, naming the nearest that is.

    Args:
        model: of the user.
        why: the rest of the sentence.
    """
    name = name_of(model)
    near = difflib.get_close_matches(name.lower(), architectures(), n=1, cutoff=0.0)[0]
    return ValueError(f"{name} is not supported: {why}; the nearest supported model is {near!r}")


def name_of(model: nn.Module) -> str:
    """The architecture of a model, or the name of its class where it does not tell.

    Args:
        model: of the user.
    """
    return getattr(model, "pretrained_cfg", {}).get("architecture") or type(model).__name__


def _host_class(module: nn.Module) -> type[nn.Module]:
    return getattr(type(module), "host_class", type(module))
