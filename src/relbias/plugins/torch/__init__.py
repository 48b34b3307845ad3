"""Relative encodings inside anything that uses torch's nn.MultiheadAttention."""

from relbias.plugins.torch.plugin import attach, detach, settings

__all__ = ["attach", "detach", "settings"]
