"""Relative encodings inside timm's vision transformers."""

from relbias.plugins.timm.plugin import attach, attn_layer, detach, list_models, resize, settings

__all__ = ["attach", "attn_layer", "detach", "list_models", "resize", "settings"]
