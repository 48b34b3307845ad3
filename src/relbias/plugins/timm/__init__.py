"""Relative encodings inside timm's vision transformers."""

from relbias.plugins.timm.plugin import attach, attn_layer, detach, list_models, resize, settings
from relbias.plugins.timm.tables import give_bias_tables, take_bias_tables

__all__ = [
    "attach",
    "attn_layer",
    "detach",
    "give_bias_tables",
    "list_models",
    "resize",
    "settings",
    "take_bias_tables",
]
