"""What timm leaves of some models with features_only=True: their stages, without the model around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from relbias._extras import extra
from relbias.plugins.engine import Site
from relbias.plugins.timm import (
    csatv2,
    maxxvit,
    mobilevit,
    swin_transformer,
    swin_transformer_v2,
    swin_transformer_v2_cr,
)
from relbias.plugins.timm.host import Host, UnsupportedError
from relbias.plugins.timm.root import AttachedModel
from relbias.plugins.timm.unsupported import reason

with extra("vision"):
    from timm.models._features import FeatureListNet


class AttachedFeatureList(AttachedModel, FeatureListNet):
    """Stages with an encoding attached."""

    host_class = FeatureListNet


_FAMILIES: tuple[Any, ...] = (mobilevit, csatv2, maxxvit, swin_transformer, swin_transformer_v2, swin_transformer_v2_cr)


def _family(root: nn.Module) -> Any:
    for family in _FAMILIES:
        if family.attends(root):
            return family
    raise UnsupportedError(reason(root))


def _sites(root: Any, grid: tuple[int, int]) -> list[Site]:
    return _family(root).find_sites(root, grid)


def _classes(root: Any) -> Mapping[nn.Module, type[nn.Module]]:
    family = _family(root)
    return {root: AttachedFeatureList, **(family.blocks(root) if hasattr(family, "blocks") else {})}


def _grid(root: Any) -> tuple[int, int]:
    return _family(root).own_grid(root)


HOSTS = [Host(root=FeatureListNet, modules=(), sites=_sites, classes=_classes, grid=_grid)]
